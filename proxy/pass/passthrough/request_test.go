package passthrough_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// A request arrives upstream unchanged, except for the headers of one connection and the headers
// that name a client.
func TestRequestUnchanged(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		var got string
		p.Up.OnClients(func(_ http.ResponseWriter, r *http.Request) {
			via := r.Header.Get("Via")
			if !strings.HasPrefix(via, "1.0 fred, 1.1 p.example, 1.1 watchfan-") || len(r.Header["Via"]) != 1 {
				t.Errorf("it came via %q", r.Header["Via"])
			}
			r.Header.Del("Via")
			dump, _ := httputil.DumpRequest(r, true)
			got = string(dump)
		})
		p.Send(bubble.Request{Method: "PATCH", Target: "/apis/x%2Fy//z?a=b%20c&&d=%zz", Body: "{}", Header: []string{
			"Connection", "keep-alive, X-Once", "X-Once", "1", "Te", "trailers", "X-Remote-User", "root",
			"X-Remote-Extra-Scopes", "all", "X-Forwarded-For", "10.1.1.1", "X-Multi", "1", "X-Multi", "2",
			"Via", "1.0 fred", "Via", "1.1 p.example", "Content-Type", "application/merge-patch+json", "Content-Length", "2"}}).Read()
		want := strings.ReplaceAll("PATCH /apis/x%2Fy//z?a=b%20c&&d=%zz HTTP/1.1\nHost: "+strings.TrimPrefix(p.Up.URL, "http://")+
			"\nAuthorization: Bearer own-token\nContent-Length: 2\nContent-Type: application/merge-patch+json\nUser-Agent: "+
			proxytest.ClientAgent+"\nX-Forwarded-For: 10.1.1.1, 127.0.0.1\nX-Multi: 1\nX-Multi: 2\n\n{}", "\n", "\r\n")
		if got != want {
			t.Errorf("upstream got\n%q, want\n%q", got, want)
		}
	})
}

// A body is sent on piece by piece, with its length or in chunks, a known client's and a stranger's.
func TestRequestStreams(t *testing.T) {
	for i := range 4 {
		length, token := []int64{-1, 2 * upstream.MaxKeptBody}[i%2], []string{"", bubble.ClientToken}[i/2]
		bubble.Row(t, fmt.Sprintf("length=%d,token=%s", length, token), func(t *testing.T, p *bubble.Proxy) {
			got := make(chan int)
			p.Up.OnClients(func(_ http.ResponseWriter, r *http.Request) {
				if r.ContentLength != length {
					t.Errorf("got Content-Length %d", r.ContentLength)
				}
				for range 2 {
					n, err := io.ReadFull(r.Body, make([]byte, upstream.MaxKeptBody))
					if err != nil {
						t.Error(err)
					}
					got <- n
				}
				if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("at the end got %d bytes, %v", n, err)
				}
			})
			r, w := io.Pipe()
			c := p.Begin(bubble.Request{Method: "POST", Target: "/things", Upload: r, Length: length, Token: token})
			for range 2 {
				if _, err := w.Write(make([]byte, upstream.MaxKeptBody)); err != nil {
					t.Fatal(err)
				}
				if n := <-got; n != upstream.MaxKeptBody {
					t.Errorf("upstream got %d bytes", n)
				}
			}
			w.Close()
			c.Read()
		})
	}
}

// Writes of a known client whose bodies do not come ask nothing of kube-apiserver. Once they have come,
// each is sent.
func TestBodiesComeFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Send(bubble.Request{Method: "PUT", Target: bubble.CMs, Body: "{}", Token: bubble.ClientToken}).Read() // makes the token known
		const writes = 20
		var bodies []*io.PipeWriter
		for i := range writes {
			r, w := io.Pipe()
			bodies = append(bodies, w)
			p.Begin(bubble.Request{Method: "POST", Target: bubble.CMs, Upload: r, Length: -1, Token: bubble.ClientToken, HTTP2: i%2 == 0})
			if _, err := io.WriteString(w, `{"kind":`); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		p.Passed(1)
		for _, w := range bodies {
			if _, err := io.WriteString(w, `"ConfigMap"}`); err != nil {
				t.Fatal(err)
			}
			w.Close()
		}
		synctest.Wait()
		p.Passed(1 + writes)
	})
}

// The kubeconfig of a gateway has a path, as https://gateway/clusters/a. A request stays below it, even if
// the gateway resolves dots. It carries the proxy's credentials.
func TestBasePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		up.URL += "/clusters/a"
		p := bubble.Start(t, up)
		var got string
		up.OnClients(func(_ http.ResponseWriter, r *http.Request) { got = path.Clean(r.URL.Path) })
		for target, want := range map[string]string{
			"/":                                "/clusters/a",
			"/version":                         "/clusters/a/version",
			"/x/../version":                    "/clusters/a/version",
			"/..":                              "",
			"/../b/version":                    "",
			"/x/../../b/version?watch=1":       "",
			"/%2e%2e/b/version":                "",
			"/..%2fb%2fversion":                "",
			"/api/v1/watch/..//../../../../ab": "",
			"/../ab":                           "",
		} {
			for _, method := range []string{"GET", "POST"} {
				got = ""
				code := http.StatusNotFound
				if want != "" {
					code = http.StatusOK
				}
				if resp, _ := p.Send(bubble.Request{Method: method, Target: target}).Read(); resp.StatusCode != code || got != want {
					t.Errorf("%s %s: %d, upstream got %q, want %q", method, target, resp.StatusCode, got, want)
				}
			}
		}
	})
}

// Another watchfan's probe, which asks how far upstream is, passes through. Its other watches, and
// other clients' short watches, do not.
func TestProbesPassThrough(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		rv := p.CMs.Put("ns", "a", "1")
		p.Watch(bubble.AnyState).Await(1)
		watchfan := []string{"Via", "1.1 gate, 1.1 watchfan-abc"}
		for _, c := range []struct {
			seconds string
			header  []string
			passed  int
		}{{"3", nil, 0}, {"3", []string{"Via", "1.1 gate"}, 0}, {"300", watchfan, 0}, {"3", watchfan, 1}} {
			p.Send(bubble.Request{Target: fmt.Sprintf(bubble.Since+"&timeoutSeconds=", rv) + c.seconds, Header: c.header}).Watch()
			p.Passed(c.passed)
		}
	})
}

// A request that has already passed this watchfan is refused, with any method.
func TestLoopDetected(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		var ours string
		p.Up.OnClients(func(_ http.ResponseWriter, r *http.Request) { ours = r.Header.Get("Via") })
		p.Get("/version", "Via", "1.1 gate")
		if !strings.HasPrefix(ours, "1.1 gate, 1.1 watchfan-") {
			t.Fatalf("it came via %q", ours)
		}
		for _, method := range []string{"GET", "POST", "DELETE"} {
			resp, body := p.Send(bubble.Request{Method: method, Target: "/version",
				Header: []string{"Via", "1.1 first", "Via", ours + ", 1.1 watchfan-other"}}).Read()
			if resp.StatusCode != http.StatusLoopDetected || !strings.Contains(body, `"kind":"Status"`) || !strings.Contains(body, `"code":508`) {
				t.Errorf("%s: %d %s", method, resp.StatusCode, body)
			}
		}
		p.Passed(1)
		if resp, _ := p.Get("/version", "Via", "1.1 watchfan-other"); resp.StatusCode != http.StatusOK {
			t.Errorf("another watchfan's request: %d", resp.StatusCode)
		}
	})
}

// A client certificate's user is impersonated with the proxy's own credential, in ordinary requests,
// streams and upgrades. The client's own identity headers are not forwarded. Without the certificate
// the same client is anonymous, and the proxy's credential is not used.
func TestRequestOfCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := proxytest.NewAuthority(filepath.Join(t.TempDir(), "ca.crt"), &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}})
		if err != nil {
			t.Fatal(err)
		}
		jane, err := ca.Client("jane", []string{"devs"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		up := proxytest.NewBubbleServer(t)
		p := bubble.Start(t, up, func(o *proxy.Options) {
			o.Auth.ClientCAFile, o.Auth.RequestHeaderUsernameHeaders = ca.File, []string{"X-Custom-User"}
		})
		var got string
		up.OnClients(func(_ http.ResponseWriter, r *http.Request) {
			var says []string
			for name, values := range r.Header {
				if strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-") && name != "X-Forwarded-For" || name == "Authorization" {
					values[0], _, _ = strings.Cut(values[0], "=") // without the digest of a certificate
					says = append(says, fmt.Sprintf("%s=%q", name, values))
				}
			}
			slices.Sort(says)
			got = strings.Join(says, " ")
		})
		lies := []string{"X-Remote-User", "root", "X-Custom-User", "root", "Authorization", "Basic x", "impersonate-new", "x"}
		for target, connection := range map[string][]string{"/version": nil, followLog: {"Connection", "X-Nothing"},
			exec: {"Connection", "Upgrade", "Upgrade", "SPDY/3.1"}} {
			for want, certificates := range map[string][]*x509.Certificate{
				`Impersonate-New=["x"]`: nil, // anonymous: kube-apiserver decides about its headers
				`Authorization=["Bearer own-token"] Impersonate-Extra-Authentication.kubernetes.io%2fcredential-Id=["X509SHA256"` +
					`] Impersonate-Group=["devs" "system:authenticated"] Impersonate-User=["jane"]`: {jane.Leaf},
			} {
				p.Send(bubble.Request{Target: target, Header: slices.Concat(lies, connection),
					TLS: &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: certificates}}).Response()
				if got != want {
					t.Errorf("%s with %d certificates: got %s", target, len(certificates), got)
				}
			}
		}
	})
}
