package upstream

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/gate/auth"
)

const aboutOwn, aboutToken, aboutResource = `299 - "own"`, `299 - "token"`, `299 - "resource"`

// newWarningServer returns a server that warns by credential, and then about what is below /api.
func newWarningServer(t *testing.T) *Upstream {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer own":
			w.Header().Add("Warning", aboutOwn)
		case "Bearer token":
			w.Header().Add("Warning", aboutToken)
		}
		if r.URL.Path == "/api" {
			w.Header().Add("Warning", aboutResource)
		}
	}))
	t.Cleanup(s.Close)
	u, err := NewUpstream(&rest.Config{Host: s.URL, BearerToken: "own"})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A user whom the proxy impersonates is not sent the Warnings about the proxy's credential. All
// others are sent what kube-apiserver sends.
func TestOwnWarnings(t *testing.T) {
	u := newWarningServer(t)
	f := func(id auth.Identity, path string, want ...string) {
		t.Helper()
		for _, do := range []func(auth.Identity, *http.Request) (*http.Response, error){u.DoAs, u.DoUpgrade} {
			resp, err := do(id, &http.Request{Method: http.MethodGet, URL: u.URL(path, ""), Header: make(http.Header)})
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := resp.Header["Warning"]; !slices.Equal(got, want) {
				t.Errorf("%v: %s: got %q, want %q", id, path, got, want)
			}
		}
	}
	own, token := auth.Identity{Kind: auth.KindOwn}, auth.Identity{Kind: auth.KindToken, Token: "token"}
	user := auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: "jane"}}
	f(user, "/api") // not known yet
	if got := u.OwnWarnings(); got != nil {
		t.Errorf("got %q before an answer", got)
	}
	resp, err := u.Do(&http.Request{Method: http.MethodGet, URL: u.URL("/readyz", ""), Header: make(http.Header)})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := u.OwnWarnings(); !slices.Equal(got, []string{aboutOwn}) {
		t.Errorf("got %q, want %q", got, aboutOwn)
	}
	f(user, "/api", aboutResource)
	f(user, "/version")
	f(own, "/api", aboutOwn, aboutResource)
	f(token, "/api", aboutToken, aboutResource)
	f(auth.Identity{}, "/api", aboutResource)

	got, err := WithoutOwn(t.Context(), u, []string{aboutOwn, aboutResource})
	if err != nil || !slices.Equal(got, []string{aboutResource}) {
		t.Errorf("without the own: %q, %v", got, err)
	}
	if got, err := WithoutOwn(t.Context(), u, nil); err != nil || got != nil {
		t.Errorf("of none: %q, %v", got, err)
	}
}
