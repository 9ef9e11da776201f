package upstream

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// serving is a kube-apiserver that can come back with another certificate, and other keys of session tickets.
type serving struct {
	config   atomic.Pointer[tls.Config]
	requests atomic.Int64
}

func (s *serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	_, _ = io.WriteString(w, r.Proto)
}

// authorityOf returns an authority, and a server's configuration with a certificate that it has signed.
func authorityOf(t *testing.T, name string) (*proxytest.Authority, *tls.Config) {
	t.Helper()
	a, err := proxytest.NewAuthority(filepath.Join(t.TempDir(), "ca.crt"), &x509.Certificate{Subject: pkix.Name{CommonName: name}})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := a.Sign(&x509.Certificate{DNSNames: []string{"example.com"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{*certificate}, NextProtos: []string{"h2", "http/1.1"}}
	config.SetSessionTicketKeys([][32]byte{sha256.Sum256(a.PEM())}) // otherwise both servers have the same
	return a, config
}

// A kube-apiserver that comes back with a certificate of another authority gets no request, and so no
// token, of anybody. When the file of authorities has that one too, requests of all kinds go on within
// five minutes, without a restart, and with the same windows. A file that is empty or broken changes
// nothing.
func TestAnotherAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, before := authorityOf(t, "first")
		second, after := authorityOf(t, "second")
		var s serving
		s.config.Store(before)
		pipes := proxytest.NewPipes()
		server := &http.Server{Handler: &s, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
			Certificates:       before.Certificates,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.config.Load(), nil }}}
		go func() { _ = server.ServeTLS(pipes, "", "") }()
		defer server.Close()
		u, err := NewUpstream(&rest.Config{Host: "https://example.com:1", BearerToken: "own", Dial: pipes.Dial,
			TLSClientConfig: rest.TLSClientConfig{CAFile: first.File}})
		if err != nil {
			t.Fatal(err)
		}
		defer u.CloseIdleConnections()
		u.Tokens.Answered(bringing("known"), http.MethodGet, http.StatusOK)
		everybody := []auth.Identity{{Kind: auth.KindOwn}, bringing("known"), bringing("stranger"), {Kind: auth.KindAnonymous},
			{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: "jane"}}}
		try := func(what string, trusted bool) {
			t.Helper()
			for _, id := range everybody {
				had := s.requests.Load()
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, u.URL("/version", "").String(), nil)
				resp, err := u.Pass(id, !u.Tokens.Known(id), req)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if came := s.requests.Load() - had; (err == nil) != trusted || (came == 1) != trusted {
					t.Errorf("%s: %s: %v, %d requests came", what, id, err, came)
				}
			}
		}
		write := func(content string) {
			t.Helper()
			if err := os.WriteFile(first.File, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute) // client-go looks at it so often
			u.CloseIdleConnections()
		}
		try("at first", true)
		s.config.Store(after)
		u.CloseIdleConnections()
		try("with another certificate", false)
		for _, content := range []string{"", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
			write(content)
			try("with a broken file", false)
		}
		write(string(second.PEM()))
		try("with its authority", true)
		if err := configure(u.known, func(transport *http.Transport) {
			if transport.HTTP2 == nil || transport.HTTP2.MaxReceiveBufferPerStream != Window {
				t.Errorf("the window is %+v", transport.HTTP2)
			}
		}); err != nil {
			t.Error(err)
		}
		s.config.Store(before)
		u.CloseIdleConnections()
		try("with the certificate from before", false)
	})
}

// A file of authorities that no longer has the server's is seen by brief requests too, which client-go
// does not send, when there are no others.
func TestAuthorityTakenAway(t *testing.T) {
	var s serving
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: &s, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.config.Load(), nil }}}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	defer server.Close()
	synctest.Test(t, func(t *testing.T) {
		first, config := authorityOf(t, "first")
		second, _ := authorityOf(t, "second")
		s.config.Store(config)
		u, err := NewUpstream(&rest.Config{Host: "https://" + listener.Addr().String(), TLSClientConfig: rest.TLSClientConfig{
			CAFile: first.File, ServerName: "example.com"}})
		if err != nil {
			t.Fatal(err)
		}
		ask := func() (proto string) {
			req, _ := http.NewRequestWithContext(Brief(t.Context()), http.MethodGet, u.URL("/version", "").String(), nil)
			resp, err := u.Pass(auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: "jane"}}, false, req)
			if err != nil {
				return ""
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			return string(body)
		}
		for range 2 {
			if got := ask(); got != "HTTP/1.1" {
				t.Fatalf("a brief request got %q", got)
			}
			u.CloseIdleConnections() // time stands still in a bubble that reads from the network
			time.Sleep(5 * time.Minute)
		}
		if err := os.WriteFile(first.File, second.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // client-go looks at it so often
		if got := ask(); got != "" || s.requests.Load() != 2 {
			t.Errorf("got %q, and %d requests came", got, s.requests.Load())
		}
		u.CloseIdleConnections()
	})
}
