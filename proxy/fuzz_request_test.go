package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/gate/request"
)

// FuzzRequest feeds bytes to the real server, whose upstream records the requests. It compares them
// with the requests that net/http reads in the same bytes. A request goes upstream only if net/http
// reads it too, in the same order, with the same method, path, query, identity and body.
func FuzzRequest(f *testing.F) {
	for _, seed := range fuzzRequestSeeds {
		f.Add([]byte(strings.ReplaceAll(seed, "\n", "\r\n")), true)
		f.Add([]byte(strings.ReplaceAll(seed, "\n", "\r\n")), false)
	}
	s, upstream := recordedServer(f, NewOptions())
	panics := s.set.GetOrCreateCounter("watchfan_handler_panics_total")
	f.Fuzz(func(t *testing.T, raw []byte, secure bool) {
		if len(raw) > 4<<10 {
			return // longer ones add nothing but time
		}
		upstream.taken()
		conn := newFuzzConn(raw)
		if secure {
			_ = s.front.ServeConn(fuzzTLSConn{conn}, nil)
		} else {
			_ = s.front.ServeConn(conn, nil)
		}
		select {
		case <-conn.closed:
		case <-time.After(30 * time.Second):
			t.Fatal("the connection has not ended")
		}
		if panics.Get() > 0 {
			t.Fatal("a handler panicked")
		}
		seen := referenceRequests(raw)
		for _, got := range upstream.taken() {
			i := slices.IndexFunc(seen, func(want *referenceRequest) bool { return got.differs(want, secure) == "" })
			if i < 0 {
				var why []string
				for _, want := range seen {
					why = append(why, got.differs(want, secure))
				}
				t.Fatalf("upstream got %s %s %v %q, which net/http does not see in %q: %q", got.method, got.target,
					got.header, got.body, raw, why)
			}
			seen = seen[i+1:]
		}
	})
}

var fuzzRequestSeeds = []string{
	"GET /version HTTP/1.1\nHost: localhost\n\n",
	"GET /version HTTP/1.1\nHost: localhost\nAuthorization: Bearer a\n\nGET /b HTTP/1.1\nHost: localhost\n" +
		"Authorization: bearer  b\n\n",
	"POST /a%2Fb//c?d=e&f=%zz;g HTTP/1.1\nHost: localhost\nContent-Length: 2\n\n{}GET /next HTTP/1.1\n" +
		"Host: localhost\n\n",
	"POST /a HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n2;x=y\n{}\n0\nX-Remote-User: root\n" +
		"Authorization: Bearer x\n\nGET /next HTTP/1.1\nHost: localhost\n\n",
	"POST /a HTTP/1.1\nHost: localhost\nContent-Length: 4\nTransfer-Encoding: chunked\n\n0\n\n" +
		"GET /smuggled HTTP/1.1\nHost: localhost\n\n",
	"POST /a HTTP/1.1\nHost: localhost\nTransfer-Encoding: identity\nContent-Length: 2\n\n{}",
	"GET /a HTTP/1.1\nHost: localhost\nContent-Length: 38\n\nGET /smuggled HTTP/1.1\nHost: localhost\n\n",
	"GET /a HTTP/1.1\nHost: localhost\nX-Remote-User: root\nx-remote-group: system:masters\nImpersonate-User: a\n" +
		"impersonate-group: b\nImpersonate-Group: c\n\n",
	"GET /a HTTP/1.1\nHost: localhost\nConnection: close, X-Mine, Impersonate-User\nImpersonate-User: a\n\n",
	"GET /a HTTP/1.1\nHost: localhost\nConnection: close\nConnection: keep-alive\n\nGET /smuggled HTTP/1.1\n" +
		"Host: localhost\n\n",
	"GET /a HTTP/1.1\nHost: localhost\nA: b\n c\nX-Y : z\n\n",
	"GET http://localhost/a?b HTTP/1.1\nHost: localhost\n\nGET http://localhost?x=/a HTTP/1.1\nHost: localhost\n\n",
	"GET /% HTTP/1.1\nHost: elsewhere\n\nGET /next HTTP/1.0\n\n",
	"GET /a HTTP/1.1\nHost: elsewhere\nConnection: Close\n\nGET /next HTTP/1.0\n\n",
	"OPTIONS * HTTP/1.1\nHost: localhost\n\n", "CONNECT h:1 HTTP/1.1\nHost: h:1\n\n", "PRI * HTTP/2.0\n\nSM\n\n",
	"GET /a HTTP/1.0\n\nGET /smuggled HTTP/1.0\n\n", "GET /a HTTP/1.0\nConnection: keep-alive\n\nGET /b HTTP/1.0\n\n",
	"POST /a HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 2\n\n{}",
	"GET /api/v1/namespaces/ns/pods/p/log?follow=true HTTP/1.1\nHost: localhost\n\nGET /next HTTP/1.1\nHost: localhost\n\n",
	"GET /api/v1/pods?watch=1 HTTP/1.1\nHost: localhost\nAuthorization: Bearer x\n\nGET /next HTTP/1.1\nHost: localhost\n\n",
	"GET /exec HTTP/1.1\nHost: localhost\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA\n\n",
	"GET /exec HTTP/1.1\nHost: localhost\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Protocol: a, base64url.bearer.authorization.k8s.io.eA\n\n",
	"GET /api/v1/pods?watch=1 HTTP/1.1\nHost: localhost\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: a\nOrigin: http://localhost\n\n\x88\x80abcd",
	"POST /exec HTTP/1.1\nHost: localhost\nConnection: Upgrade\nUpgrade: SPDY/3.1\nContent-Length: 1\n\nxGET /next HTTP/1.1\nHost: localhost\n\n",
	"GET /\xff/%c0%ae#x?y HTTP/1.1\nHost: localhost\nCookie: a=b\nCookie: c=d\nUser-Agent: x\nUser-Agent: y\nContent-Type: a\nContent-Type: b\n\n",
	"\n\nGET /a HTTP/1.1\nHost: localhost\n\n",
	"POST /cut HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n2\n{}\n",
	"POST /cut HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n2\n{}\n0\n",
	"POST /cut HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n2\n{}\n0\nx",
	"POST /cut HTTP/1.1\nHost: localhost\nContent-Length: 20000\n\n{}",
	"GET /views/lean/\xff/%41?a=b HTTP/1.1\nHost: localhost\n\nPOST /views/lean/a HTTP/1.1\nHost: localhost\nContent-Length: 2\n\n{}",
}

// upstreamRequest is a request that arrived upstream. own reports whether it carried watchfan's
// credential.
type upstreamRequest struct {
	own            bool
	method, target string
	header         http.Header
	body           []byte
	bodyErr        error
}

// referenceRequest is a request as net/http reads it.
type referenceRequest struct {
	*http.Request
	body    []byte
	bodyErr error
}

// referenceRequests reads raw as net/http's server does, up to the first request that it refuses.
// It also skips the empty lines that servers should skip (RFC 9112, section 2.2).
func referenceRequests(raw []byte) (seen []*referenceRequest) {
	r := bufio.NewReader(bytes.NewReader(raw))
	for {
		for {
			next, err := r.Peek(1)
			if err != nil || next[0] != '\r' && next[0] != '\n' {
				break
			}
			_, _ = r.Discard(1)
		}
		req, err := http.ReadRequest(r)
		if err != nil {
			return seen
		}
		want := &referenceRequest{Request: req}
		want.body, want.bodyErr = io.ReadAll(req.Body)
		if want.bodyErr != nil && (strings.Contains(want.bodyErr.Error(), "trailer") || lacksTrailer(raw, len(seen))) {
			want.bodyErr = nil // the body itself is whole
		}
		seen = append(seen, want)
		if want.bodyErr != nil || req.Close {
			return seen
		}
	}
}

// lacksTrailer reports whether the body of raw's last request, with index i, lacks only the empty
// line behind its last chunk.
func lacksTrailer(raw []byte, i int) bool {
	if bytes.HasSuffix(raw, []byte("\r\n\r\n")) {
		return false
	}
	seen := referenceRequests(slices.Concat(raw, []byte("\r\n\r\n")))
	return len(seen) > i && seen[i].bodyErr == nil
}

// differs says how a request that went upstream differs from want; "" if it does not.
func (got *upstreamRequest) differs(want *referenceRequest, secure bool) string {
	switch {
	case got.method != want.Method:
		return "method"
	case got.target != want.RequestURI && !sameTarget(got.target, want):
		return "target " + want.RequestURI
	case want.bodyErr == nil && got.bodyErr == nil && !bytes.Equal(got.body, want.body):
		return fmt.Sprintf("body %q", want.body)
	case want.bodyErr != nil && got.bodyErr == nil && len(got.body) > 0:
		return fmt.Sprintf("whole body: %v", want.bodyErr)
	}
	authorization := want.Header.Values("Authorization")
	switch {
	case got.own && (secure || len(authorization) > 0):
		return "our own credential"
	case !got.own && got.header.Get("Authorization") != "":
		token, ok := strings.CutPrefix(got.header.Get("Authorization"), "Bearer ")
		if subprotocolToken(want.Header, token) && !subprotocolToken(got.header, token) {
			break // the token has been moved
		}
		if fields := strings.Split(textproto.TrimString(want.Header.Get("Authorization")), " "); !ok || len(fields) < 2 || fields[1] != token {
			return fmt.Sprintf("token %q", want.Header.Get("Authorization"))
		}
	}
	for name, values := range got.header {
		switch {
		case strings.HasPrefix(name, "X-Remote-"):
			return name
		case strings.HasPrefix(name, request.ImpersonatePrefix) && !slices.Equal(values, want.Header[name]),
			name == "Content-Type" && values[0] != want.Header.Get(name):
			return fmt.Sprintf("%s %q", name, want.Header[name])
		}
	}
	for name := range want.Header {
		if strings.HasPrefix(name, request.ImpersonatePrefix) && got.header[name] == nil {
			return "lost " + name
		}
	}
	return ""
}

// subprotocolToken reports whether a token is among the subprotocols of a WebSocket.
func subprotocolToken(h http.Header, token string) bool {
	for protocol := range strings.SplitSeq(strings.Join(h["Sec-Websocket-Protocol"], ","), ",") {
		encoded, ok := strings.CutPrefix(strings.TrimSpace(protocol), "base64url.bearer.authorization.k8s.io.")
		if decoded, err := base64.RawURLEncoding.DecodeString(encoded); ok && err == nil && string(decoded) == token {
			return true
		}
	}
	return false
}

// sameTarget reports whether kube-apiserver reads the same path and query in target as in want's. The
// path of a view goes upstream without its prefix.
func sameTarget(target string, want *referenceRequest) bool {
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
	if err != nil || req.URL.RawQuery != want.URL.RawQuery {
		return false
	}
	behind, inView := strings.CutPrefix(want.URL.Path, "/views/lean")
	return req.URL.Path == want.URL.Path || inView && req.URL.Path == behind
}

// recordingUpstream is kube-apiserver for one connection at a time. It answers everything with 404.
type recordingUpstream struct {
	mu       sync.Mutex
	requests []*upstreamRequest
}

// taken returns the requests since the last call.
func (u *recordingUpstream) taken() []*upstreamRequest {
	u.mu.Lock()
	defer u.mu.Unlock()
	requests := u.requests
	u.requests = nil
	return requests
}

// recordingTransport is one of Upstream's transports.
type recordingTransport struct {
	*recordingUpstream
	own bool
}

func (recordingTransport) CloseIdleConnections() {}

func (rt recordingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	got := &upstreamRequest{own: rt.own, method: req.Method, target: req.URL.RequestURI(), header: req.Header}
	if req.Body != nil {
		got.body, got.bodyErr = io.ReadAll(req.Body)
		req.Body.Close()
	}
	if req.Header.Get("X-Forwarded-For") != "" { // it is a client's request, not watchfan's own
		rt.mu.Lock()
		rt.requests = append(rt.requests, got)
		rt.mu.Unlock()
	}
	if got.bodyErr != nil {
		return nil, got.bodyErr
	}
	return &http.Response{StatusCode: http.StatusNotFound, ProtoMajor: 2, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader("not here")), ContentLength: 8, Request: req}, nil
}

// recordedServer returns a server that does not listen, in front of a recordingUpstream.
func recordedServer(t testing.TB, opts Options) (*Server, *recordingUpstream) {
	s, err := NewFor(&rest.Config{Host: "http://upstream.example", BearerToken: "own"}, opts, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	u := &recordingUpstream{}
	for name, own := range map[string]bool{"own": true, "naming": true, "ownUpgrade": true, "known": false, "strangers": false} {
		*inside[http.RoundTripper](s.upstream, name) = recordingTransport{u, own}
	}
	t.Cleanup(s.cancel)
	return s, u
}

// fuzzConn is the connection of a client that has sent everything, and that reads everything.
type fuzzConn struct {
	mu     sync.Mutex
	rest   []byte
	once   sync.Once
	closed chan struct{}
}

func newFuzzConn(raw []byte) *fuzzConn { return &fuzzConn{rest: raw, closed: make(chan struct{})} }

func (c *fuzzConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *fuzzConn) Write(p []byte) (int, error) { return len(p), nil }

func (c *fuzzConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (c *fuzzConn) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8001} }
func (c *fuzzConn) RemoteAddr() net.Addr             { return c.LocalAddr() }
func (c *fuzzConn) SetDeadline(time.Time) error      { return nil }
func (c *fuzzConn) SetReadDeadline(time.Time) error  { return nil }
func (c *fuzzConn) SetWriteDeadline(time.Time) error { return nil }

// fuzzTLSConn is fuzzConn on the secure port.
type fuzzTLSConn struct{ *fuzzConn }

func (fuzzTLSConn) Handshake() error                     { return nil }
func (fuzzTLSConn) ConnectionState() tls.ConnectionState { return tls.ConnectionState{} }
