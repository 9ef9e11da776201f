package upstream

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/watchfan/watchfan/proxy/gate/auth"
)

// goawayServer answers as kube-apiserver does: a bad token with 401, an anonymous request with 403.
// It ends the connection after both. It notes the connection of each request.
type goawayServer struct {
	*httptest.Server

	mu   sync.Mutex
	came map[string]string // by the request's path: the connection
}

func newGoawayServer(t *testing.T) *goawayServer {
	s := &goawayServer{came: make(map[string]string)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.came[r.URL.Path] = fmt.Sprint(r.RemoteAddr, " HTTP/", r.ProtoMajor)
		s.mu.Unlock()
		switch {
		case r.FormValue("timeout") == "wrong": // as WithRequestDeadline, which looks before anybody is authenticated
			w.WriteHeader(http.StatusBadRequest)
		case r.Header.Get("Authorization") == "Bearer good":
			_, _ = io.Copy(io.Discard, r.Body)
		case r.Header.Get("Authorization") == "Bearer powerless":
			w.WriteHeader(http.StatusForbidden)
		case r.Header.Get("Authorization") == "":
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// upstream returns a client of the server, which has the proxy's token if that is not empty.
func (s *goawayServer) upstream(t *testing.T, token string) *Upstream {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	u, err := NewUpstream(&rest.Config{Host: s.URL, BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca, NextProtos: []string{"h2", "http/1.1"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.CloseIdleConnections)
	return u
}

// connection sends a request. It returns the connection on which the server got it, and the code of
// the answer.
func (s *goawayServer) connection(t *testing.T, u *Upstream, id auth.Identity, path string, body int) (string, int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, u.URL(path, "").String(),
		bytes.NewReader(make([]byte, body)))
	if err != nil {
		t.Fatal(err)
	}
	if path == "/wrong" {
		req.URL.RawQuery = "timeout=wrong"
	}
	resp, err := u.DoAs(id, req)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came[path], resp.StatusCode
}

// A stranger's body is not read before the server reads it, so not at all if the server refuses the
// credential. The body of an accepted one is sent whole.
func TestStrangersBodies(t *testing.T) {
	u := newGoawayServer(t).upstream(t, "")
	const size = 3 * Window
	for token, want := range map[string]int{"bad": 0, "good": size} {
		body := bytes.NewReader(make([]byte, size))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, u.URL("/", "").String(), io.NopCloser(body))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = size
		req.Header.Set("Expect", "100-continue")
		resp, err := u.Pass(bringing(token), true, req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if read := size - body.Len(); read != want {
			t.Errorf("%s: %s, and %d bytes were read, want %d", token, resp.Status, read, want)
		}
	}
}

// TestStrangersConnections: strangers never share an HTTP/2 connection, neither with a known token or
// the proxy itself nor with each other.
func TestStrangersConnections(t *testing.T) {
	s := newGoawayServer(t)
	u := s.upstream(t, "good")
	const long = MaxKeptBody + 1
	strangers := make(map[string]string)
	stranger := func(id auth.Identity, path string, body, want int) {
		t.Helper()
		conn, code := s.connection(t, u, id, path, body)
		if code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
		if !strings.HasSuffix(conn, " HTTP/1") {
			t.Errorf("%s: a stranger came over %s", path, conn)
		}
		strangers[conn] = path
	}
	apart := func(id auth.Identity, path string, body int) {
		t.Helper()
		conn, code := s.connection(t, u, id, path, body)
		if other := strangers[conn]; other != "" {
			t.Errorf("%s (%d) came over the connection of %s: %s", path, code, other, conn)
		}
	}
	stranger(bringing("bad"), "/bad", 0, 401)
	stranger(auth.Identity{}, "/anonymous", 0, 403)
	apart(bringing("good"), "/first, long", long)
	stranger(bringing("powerless"), "/powerless", 0, 403)
	stranger(bringing("bad"), "/bad, long", long, 401)
	stranger(bringing("bad"), "/wrong", 0, 400)
	apart(bringing("good"), "/second, long", long)
	stranger(bringing("bad"), "/bad again", 0, 401)
	apart(bringing("powerless"), "/known to be powerless", 0)
	apart(auth.Identity{Kind: auth.KindOwn}, "/own", long)
	stranger(auth.Identity{}, "/anonymous again", 0, 403)
	apart(bringing("good"), "/third", 0)

	good, _ := s.connection(t, u, bringing("good"), "/good", 0)
	powerless, _ := s.connection(t, u, bringing("powerless"), "/powerless again", 0)
	if good != powerless {
		t.Errorf("known tokens do not share a connection: %s and %s", good, powerless)
	}
}

// A client's token goes upstream without the proxy's, and never over a connection with the proxy's
// certificate, in upgrades neither.
func TestCredentials(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%d certificates, %q, impersonating %q", len(r.TLS.PeerCertificates), r.Header["Authorization"], r.Header["Impersonate-User"])
	}))
	s.EnableHTTP2, s.TLS = true, &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	defer s.Close()
	certificate, key, err := cert.GenerateSelfSignedCertKey("watchfan", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	u, err := NewUpstream(&rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca, CertData: certificate, KeyData: key}})
	if err != nil {
		t.Fatal(err)
	}
	defer u.CloseIdleConnections()
	ways := map[string]func(auth.Identity, *http.Request) (*http.Response, error){"as usual": u.DoAs, "with an upgrade": u.DoUpgrade,
		"for a stranger": func(id auth.Identity, req *http.Request) (*http.Response, error) { return u.Pass(id, true, req) }}
	for _, c := range []struct {
		id   auth.Identity
		user []string // Impersonate-User, as the client sends it
		want string
	}{
		{auth.Identity{Kind: auth.KindOwn}, nil, `2 certificates, [], impersonating []`},
		{auth.Identity{Kind: auth.KindFrontProxy, User: &auth.UserInfo{Name: "ann"}}, nil, `2 certificates, [], impersonating ["ann"]`},
		{bringing("t"), nil, `0 certificates, ["Bearer t"], impersonating []`},
		{bringing("t"), []string{"jane"}, `0 certificates, ["Bearer t"], impersonating ["jane"]`},
		{auth.Identity{Kind: auth.KindAnonymous}, nil, `0 certificates, [], impersonating []`},
	} {
		for way, send := range ways {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.URL("/", "").String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header["Impersonate-User"] = c.user
			resp, err := send(c.id, req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(got) != c.want || err != nil {
				t.Errorf("%v, %s: got %s, %v, want %s", c.id, way, got, err, c.want)
			}
		}
	}
}

// bringing returns the identity of a client with a token.
func bringing(token string) auth.Identity { return auth.Identity{Kind: auth.KindToken, Token: token} }

// A head that kube-apiserver would not take is not sent, over whichever connection. Any other is
// taken, although the proxy adds fields to it.
func TestLongHeads(t *testing.T) {
	u := newGoawayServer(t).upstream(t, "good")
	stranger := func(id auth.Identity, req *http.Request) (*http.Response, error) { return u.Pass(id, true, req) }
	known := func(id auth.Identity, req *http.Request) (*http.Response, error) { return u.Pass(id, false, req) }
	for name, c := range map[string]struct {
		id auth.Identity
		do func(auth.Identity, *http.Request) (*http.Response, error)
	}{
		"own":         {auth.Identity{Kind: auth.KindOwn}, u.DoAs},
		"known":       {bringing("good"), known},
		"stranger":    {bringing("good"), stranger},
		"upgrade":     {bringing("good"), u.DoUpgrade},
		"certificate": {auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: "jane"}}, known},
	} {
		for _, field := range []int{1, 1000, mostHead} {
			for _, more := range []int{-600, 1} { // the fields of the proxy have fewer bytes
				req := &http.Request{Method: http.MethodGet, URL: u.URL("/", ""), Header: make(http.Header)}
				for left := mostHead + more; left > 0; left -= field + 33 {
					req.Header.Add("A", strings.Repeat("a", max(0, min(field, left-33))))
				}
				resp, err := c.do(c.id, req)
				if (more > 0) != errors.Is(err, ErrLongHead) || more < 0 && (err != nil || resp.StatusCode != http.StatusOK) {
					t.Errorf("%s: %d bytes more in fields of %d: %v, %v", name, more, field, resp, err)
				}
				if err == nil {
					resp.Body.Close()
				}
			}
		}
	}
}
