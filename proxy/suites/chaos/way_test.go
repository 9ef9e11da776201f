package chaos_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// way is a way to the Kubernetes API: straight to kube-apiserver, or through a port of watchfan.
type way struct {
	name   string
	base   string
	token  string
	tls    *tls.Config
	leaps  bool // it is watchfan
	http2  bool // clients speak HTTP/2
	window int  // receive buffer, in bytes, of each stream over HTTP/2; 0: the kernel's or Go's choice
	gzip   bool // watches are asked for as gzip
	socket bool // watches are asked for over WebSockets
}

// client speaks HTTP on one way.
type client struct {
	way  way
	http *http.Client
}

// client returns a client with connections of its own. They are reset when they end.
func (w way) client() *client {
	dialer := net.Dialer{Timeout: 10 * time.Second, Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
			if w.window > 0 && !w.http2 {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, w.window)
			}
		})
	}}
	transport := &http.Transport{TLSClientConfig: w.tls, TLSHandshakeTimeout: patience, DialContext: dialer.DialContext}
	if !w.http2 {
		return &client{w, proxytest.HTTPClient(transport)}
	}
	// Dead connections are found by pings, as client-go does it, only sooner.
	transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: w.window, SendPingTimeout: 5 * time.Second,
		PingTimeout: 10 * time.Second}
	return &client{w, proxytest.HTTP2Client(transport)}
}

// connect returns a client. Those over HTTP/2 with the same window share connections to a server.
func (s *suite) connect(w way) *client {
	if !w.http2 {
		return w.client()
	}
	key := fmt.Sprint(w.base, w.window)
	if s.sharing[key] == nil {
		s.sharing[key] = w.client().http
	}
	return &client{w, s.sharing[key]}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// open sends a request, with a body in JSON if it is not "", and returns the answer, its body unread.
func (c *client) open(ctx context.Context, method, uri, accept, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.way.base+uri, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	switch {
	case body == "":
		req.Body, req.ContentLength = nil, 0
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	default:
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "chaos")
	req.Header.Set("Accept", accept)
	if c.way.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.way.token)
	}
	watch := req.URL.Query().Has("watch")
	if c.way.gzip && watch {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if !c.way.socket || !watch {
		return c.http.Do(req)
	}
	proxytest.AskForWebSocket(req)
	resp, err := c.http.Do(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.StatusCode = http.StatusOK
		body := resp.Body
		context.AfterFunc(ctx, func() { _ = body.Close() }) // net/http has handed the connection over
		resp.Body = proxytest.NewMessageReader(body, strings.Contains(accept, "protobuf"))
	}
	return resp, err
}

// answer is a whole answer.
type answer struct {
	status int
	body   []byte
	passed bool // it is kube-apiserver's
}

// ask sends a request and reads the answer.
func (c *client) ask(ctx context.Context, method, uri, accept, body string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	resp, err := c.open(ctx, method, uri, accept, body)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, content, !proxytest.FromCache(resp.Header)}, err
}

// write makes a write. An error says that it was not acknowledged.
func (c *client) write(ctx context.Context, method, uri, body string) ([]byte, error) {
	a, err := c.ask(ctx, method, uri, jsonForm.accept, body)
	if err == nil && a.status >= 300 {
		err = fmt.Errorf("%s %s: %d: %.200s", method, uri, a.status, a.body)
	}
	return a.body, err
}

// get gets an object, a list or a page.
func (c *client) get(ctx context.Context, path string, query url.Values, f form) (answer, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.ask(ctx, http.MethodGet, path, f.accept, "")
}

// collection is the path of a resource, in all namespaces or one.
func collection(resource, namespace string) string {
	path := "/api/v1"
	if resource == "widgets" {
		path = "/apis/example.com/v1"
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + resource
}

// certify makes the replicas' own certificate, and one for a user whose name kube-apiserver knows. This
// one is valid before and after every jump of the clock.
func (s *suite) certify(user string) {
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().AddDate(0, 0, -10),
			NotAfter: time.Now().AddDate(0, 0, 10)}
	}
	var err error
	if s.certFile, s.keyFile, err = downstream.SelfSigned(s.t.TempDir()); err != nil {
		s.t.Fatal(err)
	}
	ca, err := proxytest.NewAuthority(filepath.Join(s.t.TempDir(), "client-ca.crt"), template("chaos-ca"))
	if err != nil {
		s.t.Fatal(err)
	}
	leaf := template(user)
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	pair, err := ca.Sign(leaf)
	if err != nil {
		s.t.Fatal(err)
	}
	s.caFile, s.certificate = ca.File, *pair
}

// The ways to a watchfan: by the insecure port, by the TLS port with a token or a certificate, over HTTP/2,
// and as WebSockets by both ports.
const (
	plainWay = iota
	tokenWay
	certificateWay
	http2Way
	socketWay
	secureSocketWay
)

// waysOf returns the ways to p in that order.
func (s *suite) waysOf(p *watchfan) []way {
	plain := way{name: "plain", base: fmt.Sprintf("http://127.0.0.1:%d", p.ports.insecure), leaps: true}
	token := way{name: "TLS and token", base: fmt.Sprintf("https://127.0.0.1:%d", p.ports.secure), token: s.token("reader"),
		tls: &tls.Config{InsecureSkipVerify: true}, leaps: true}
	ways := []way{plain, token, token, token, plain, token}
	ways[certificateWay].name, ways[certificateWay].token = "TLS and certificate", ""
	ways[certificateWay].tls = &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{s.certificate}}
	ways[http2Way].name, ways[http2Way].http2 = "HTTP/2 and token", true
	ways[socketWay].socket, ways[secureSocketWay].socket = true, true
	return ways
}

// entering returns the ways to s.watchfan. HTTP/2 leads through the entrance.
func (s *suite) entering() []way {
	ways := s.waysOf(s.watchfan)
	ways[http2Way].base = "https://" + s.entrance.Address()
	return ways
}
