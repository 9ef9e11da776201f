package e2e_test

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestAuthorizationHeader: a header in which kube-apiserver finds no token, or another one than its
// sender meant, has kube-apiserver's answer, with its Warning.
func TestAuthorizationHeader(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	p.waitReady(t)
	good, theirs := c.token(t, "admin"), c.as(t, "")
	secure := p.secure(t, "")
	http2 := secure.http2()
	t.Cleanup(http2.close)
	warned := 0
	for _, values := range [][]string{
		{"Bearer  " + good}, {"Bearer   " + good}, {"  bearer  " + good + " "}, {"Bearer  "}, {"Bearer  x"}, {"Bearer  x y"}, {"BEARER  " + good},
		{"Bearer\t" + good}, {"Bearer \t" + good}, {"Bearer \t"}, {"bEaReR " + good}, {"Bearer " + good + " x"}, {"Bearer"}, {"Bearer "},
		{""}, {"Basic eDp5"}, {"Basic  eDp5"}, {"Bearer bad"}, {good},
		{"Bearer  " + good, "Bearer " + good}, {"Bearer " + good, "Bearer  " + good}, {"", "Bearer " + good},
	} {
		for _, uri := range []string{"/api/v1/namespaces/default/configmaps?resourceVersion=0", "/version", "/apis/none",
			"/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0"} {
			header := http.Header{"Authorization": values}
			want, err := theirs.look(uri, header)
			if err != nil {
				t.Fatal(err)
			}
			for _, ours := range []*target{secure, http2} {
				got, err := ours.look(uri, header)
				if err != nil {
					t.Fatal(err)
				}
				if g, w := got.header["Warning"], want.header["Warning"]; got.status != want.status || !slices.Equal(g, w) {
					t.Errorf("%s with %s through %s: %d, Warning %q, want %d, %q", uri,
						strings.ReplaceAll(strings.Join(values, " | "), good, "TOKEN"), ours.name, got.status, g, want.status, w)
				}
			}
			warned += len(want.header["Warning"])
		}
	}
	if warned == 0 {
		t.Error("kube-apiserver warns nobody")
	}
	strict := privateWatchfan(t, c, "--anonymous-auth=false") // refuses by itself
	resp := strict.secure(t, "").do(t, http.MethodGet, "/version", http.Header{"Authorization": {"Bearer  x"}}, "")
	if w := resp.header.Get("Warning"); resp.status != http.StatusUnauthorized || !strings.Contains(w, "extra space") {
		t.Errorf("a refusal: %d, Warning %q", resp.status, w)
	}
}

// A token that is good comes as a WebSocket's subprotocol, beside a header without a token.
func TestAuthorizationHeaderOfWebSocket(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	p.waitReady(t)
	protocol := "Sec-WebSocket-Protocol: a, base64url.bearer.authorization.k8s.io." +
		base64.RawURLEncoding.EncodeToString([]byte(c.token(t, "user")))
	for _, uri := range []string{"/api/v1/configmaps?watch=1", "/version", "/apis/none"} {
		for _, header := range []string{"Bearer  x", "Bearer", "Basic x"} {
			var heads [2]string
			for i, d := range []*target{p.secure(t, ""), c.as(t, "")} {
				w, err := d.socket(uri, nil, "Authorization: "+header, protocol)
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.SplitSeq(w.Head, "\r\n") {
					if strings.HasPrefix(line, "HTTP/") || strings.HasPrefix(line, "Warning:") {
						heads[i] += line + "\n"
					}
				}
				w.Close()
			}
			if heads[0] != heads[1] {
				t.Errorf("%s with %q:\n%swant\n%s", uri, header, heads[0], heads[1])
			}
		}
	}
}
