package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/upstream"
)

const (
	ownToken    = "own-token"
	clientToken = "client-token"

	followLog = "/api/v1/namespaces/ns/pods/web/log?follow=true"
	asTable   = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// front is a proxy in front of a scripted upstream.
type front struct {
	t                       *testing.T
	insecure, secure, admin string // host:port
	stop                    func() // stops the proxy and waits for it
}

// startFront runs a proxy in front of upstream, with ownToken as its credential. If upstream is
// nil, there is no server behind it.
func startFront(t *testing.T, upstream *httptest.Server, change ...func(*proxy.Options, *clientcmdapi.Config)) *front {
	t.Helper()
	f := startServer(t, upstream, nil, change...)
	return f
}

// optionsFor returns options for a proxy in front of cluster, on ports of its own.
func optionsFor(
	t *testing.T, cluster clientcmdapi.Cluster, change ...func(*proxy.Options, *clientcmdapi.Config),
) proxy.Options {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &cluster
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: ownToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"

	opts := proxy.NewOptions()
	opts.Upstream.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	opts.InsecurePort, opts.SecurePort, opts.AdminPort = proxy.AnyPort, 0, 0
	opts.Downstream.CertDir = t.TempDir()
	opts.ShutdownTimeout = 2 * time.Second
	// A proof that comes late on a busy machine must not decide a test.
	opts.Lane.FreshnessTimeout = proxytest.Patience
	for _, c := range change {
		c(&opts, config)
	}
	if err := clientcmd.WriteToFile(*config, opts.Upstream.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	return opts
}

func startServer(
	t *testing.T, upstream *httptest.Server, prepare func(*proxy.Server),
	change ...func(*proxy.Options, *clientcmdapi.Config),
) *front {
	t.Helper()
	cluster := clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}
	if upstream != nil {
		cluster.Server = upstream.URL
		if upstream.TLS != nil {
			cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
				Bytes: upstream.Certificate().Raw})
		}
	}
	opts := optionsFor(t, cluster, change...)
	server, err := proxy.New(opts,
		slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(server)
	}
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	return &front{t: t, insecure: server.InsecureAddr(), secure: server.SecureAddr(), admin: server.AdminAddr(),
		stop: runServer(t, server)}
}

// runServer runs a server that listens until the test ends, or stop has returned.
func runServer(t *testing.T, server *proxy.Server) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(proxytest.Patience):
			t.Errorf("Run did not return within %s of its context's end", proxytest.Patience)
		}
	})
	t.Cleanup(stop)
	return stop
}

// upstreamFunc is an HTTP/1.1 upstream.
func upstreamFunc(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(handler)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// upstreamTLS is an HTTP/2 upstream that accepts any client certificate.
func upstreamTLS(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// dial opens a raw connection to the insecure port.
func (f *front) dial() *rawConn {
	f.t.Helper()
	c, err := net.Dial("tcp", f.insecure)
	if err != nil {
		f.t.Fatal(err)
	}
	return newRawConn(f.t, c)
}

// dialTLS opens a raw connection to the secure port.
func (f *front) dialTLS() *rawConn {
	f.t.Helper()
	c, err := tls.Dial("tcp", f.secure, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		f.t.Fatal(err)
	}
	return newRawConn(f.t, c)
}

// rawConn is a client that sends bytes as they are and reads responses.
type rawConn struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func newRawConn(t *testing.T, c net.Conn) *rawConn {
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(proxytest.Patience))
	return &rawConn{c, t, bufio.NewReader(c)}
}

func (c *rawConn) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, strings.ReplaceAll(format, "\n", "\r\n"), args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawConn) head(method string) *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("read response: %v", err)
	}
	return resp
}

func (c *rawConn) response() (*http.Response, string) {
	c.t.Helper()
	resp := c.head("GET")
	return resp, bodyOf(c.t, resp)
}

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read body: %v", err)
	}
	return string(body)
}

// do sends a request over a connection of its own.
func (f *front) do(method, path string, body io.Reader, header ...string) *http.Response {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+f.insecure+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	f.t.Cleanup(transport.CloseIdleConnections)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func awaitClosed(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(proxytest.Patience):
		t.Fatalf("%s did not happen within %s", what, proxytest.Patience)
	}
}

func flush(w http.ResponseWriter) { w.(http.Flusher).Flush() }

// A request arrives upstream unchanged, except for the headers of one connection and the headers
// that name a client.
func TestPassthroughRequest(t *testing.T) {
	got := make(chan string, 1)
	upstream := upstreamTLS(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		via := r.Header.Get("Via")
		if !strings.HasPrefix(via, "1.0 fred, 1.1 p.example, 1.1 watchfan-") || len(r.Header["Via"]) != 1 {
			t.Errorf("it came via %q", r.Header["Via"])
		}
		r.Header.Del("Via")
		dump, _ := httputil.DumpRequest(r, true)
		got <- string(dump)
	})
	f := startFront(t, upstream)
	c := f.dial()
	c.send("PATCH /apis/x%%2Fy//z?a=b%%20c&&d=%%zz HTTP/1.1\nHost: localhost\nConnection: keep-alive, X-Once\n" +
		"X-Once: 1\nTe: trailers\nX-Remote-User: root\nX-Remote-Extra-Scopes: all\nX-Forwarded-For: 10.1.1.1\n" +
		"X-Multi: 1\nX-Multi: 2\nVia: 1.0 fred\nVia: 1.1 p.example\nUser-Agent: kubectl/v1\n" +
		"Content-Type: application/merge-patch+json\nContent-Length: 2\n\n{}")
	if resp, _ := c.response(); resp.StatusCode != 200 {
		t.Fatalf("got status %s", resp.Status)
	}
	want := strings.ReplaceAll("PATCH /apis/x%2Fy//z?a=b%20c&&d=%zz HTTP/2.0\nHost: "+
		strings.TrimPrefix(upstream.URL, "https://")+
		"\nAuthorization: Bearer own-token\nContent-Length: 2\nContent-Type: application/merge-patch+json\n"+
		"User-Agent: kubectl/v1\nX-Forwarded-For: 10.1.1.1, 127.0.0.1\nX-Multi: 1\nX-Multi: 2\n\n{}", "\n", "\r\n")
	if g := <-got; g != want {
		t.Errorf("upstream got\n%q, want\n%q", g, want)
	}
}

// The response is upstream's. Nothing is added, repeated headers stay separate, and nothing is
// decompressed.
func TestPassthroughResponse(t *testing.T) {
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Warning", `299 - "one"`)
		w.Header().Add("Warning", `299 - "two"`)
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("Content-Encoding", "gzip")
		w.Header()["Content-Type"] = nil
		w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "\x1f\x8bnot really")
	}))
	for _, path := range []string{"/version", followLog} {
		t.Run(path, func(t *testing.T) {
			resp := f.do("GET", path, nil)
			body := bodyOf(t, resp)
			resp.Header.Del("Date")
			got := fmt.Sprintf("%d %v %q", resp.StatusCode, resp.Header, body)
			want := `418 map[Content-Encoding:[gzip] Content-Length:[12] Warning:[299 - "one" 299 - ` +
				`"two"]] "\x1f\x8bnot really"`
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// "Flush: status line and headers at once, before any event; then after an event whenever no
// further event is ready to be written."
func TestPassthroughStreamsResponse(t *testing.T) {
	for name, path := range map[string]string{
		"log":     followLog,
		"watch":   "/api/v1/pods?watch=1",
		"chunked": "/openapi/v2",
		"length":  "/version",
	} {
		t.Run(name, func(t *testing.T) {
			next := make(chan string)
			f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != strings.Split(path, "?")[0] {
					http.NotFound(w, r)
					return
				}
				if name == "length" {
					w.Header().Set("Content-Length", "10")
				} else {
					flush(w)
				}
				for s := range next {
					io.WriteString(w, s)
					flush(w)
				}
			}))
			if name == "length" { // the head comes with the first bytes
				go func() { next <- "hello" }()
			}
			resp := f.do("GET", path, nil, "Accept", asTable)
			buf := make([]byte, 5)
			for i, s := range []string{"hello", "world"} {
				if name != "length" || i > 0 {
					next <- s
				}
				if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != s {
					t.Fatalf("got %q, %v, want %q", buf, err, s)
				}
			}
			close(next)
			if n, err := resp.Body.Read(buf); n != 0 || err != io.EOF {
				t.Errorf("at the end got %d bytes, %v", n, err)
			}
		})
	}
}

func TestPassthroughStreamsRequest(t *testing.T) {
	for name, length := range map[string]int64{"chunked": -1, "length": 2 * upstream.MaxKeptBody} {
		t.Run(name, func(t *testing.T) {
			got := make(chan int)
			f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != "POST" {
					return
				}
				if r.ContentLength != length {
					t.Errorf("got Content-Length %d, want %d", r.ContentLength, length)
				}
				buf := make([]byte, upstream.MaxKeptBody)
				for range 2 {
					n, err := io.ReadFull(r.Body, buf)
					if err != nil {
						t.Error(err)
					}
					got <- n
				}
				if n, err := r.Body.Read(buf); n != 0 || err != io.EOF {
					t.Errorf("at the end got %d bytes, %v", n, err)
				}
			}))
			r, w := io.Pipe()
			go func() {
				for range 2 {
					w.Write(make([]byte, upstream.MaxKeptBody))
					if n := <-got; n != upstream.MaxKeptBody {
						t.Errorf("upstream got %d bytes", n)
					}
				}
				w.Close()
			}()
			req, _ := http.NewRequest("POST", "http://"+f.insecure+"/api/v1/namespaces/ns/configmaps", r)
			req.ContentLength = length
			resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			bodyOf(t, resp)
		})
	}
}

func TestExpectContinue(t *testing.T) {
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	c := f.dial()
	c.send("POST /echo HTTP/1.1\nHost: localhost\nContent-Length: 5\nExpect: 100-continue\n\n")
	if resp := c.head("POST"); resp.StatusCode != 100 {
		t.Fatalf("got %s, want 100 Continue", resp.Status)
	}
	c.send("hello")
	if _, body := c.response(); body != "hello" {
		t.Errorf("got %q", body)
	}
}

// The proxy notices that a client has left even while nothing is sent, before and after upstream's
// head, and also if the request has a body, short or long.
func TestDisconnectCancelsUpstream(t *testing.T) {
	for _, upstreamKind := range []func(*testing.T, http.HandlerFunc) *httptest.Server{upstreamFunc, upstreamTLS} {
		for i := range 6 {
			headFirst, body := i%2 == 0, strings.Repeat("x", []int{0, 2, upstream.MaxKeptBody + 2}[i/2])
			t.Run(fmt.Sprintf("headFirst=%v,body=%d", headFirst, len(body)), func(t *testing.T) {
				t.Parallel()
				began, ended := make(chan struct{}), make(chan struct{})
				f := startFront(t, upstreamKind(t, func(w http.ResponseWriter, r *http.Request) {
					if !strings.HasSuffix(r.URL.Path, "/log") {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body) // net/http notices no client's end before
					if headFirst {
						flush(w)
					}
					close(began)
					<-r.Context().Done()
					close(ended)
				}))
				c := f.dial()
				c.send("GET %s HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", followLog, len(body), body)
				awaitClosed(t, "the request's arrival", began)
				if headFirst {
					c.head("GET")
				}
				c.Close()
				awaitClosed(t, "the upstream request's end", ended)
			})
		}
	}
}

// A stream that its client resets ends upstream too, with a body in its request as well.
func TestResetCancelsUpstream(t *testing.T) {
	for _, body := range []string{"", "{}"} {
		began, ended := make(chan struct{}), make(chan struct{})
		f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/log") {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			flush(w)
			close(began)
			<-r.Context().Done()
			close(ended)
		}), func(o *proxy.Options, _ *clientcmdapi.Config) { o.SecurePort = proxy.AnyPort })
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+f.secure+followLog, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http2Client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		awaitClosed(t, "the request's arrival", began)
		cancel()
		resp.Body.Close()
		awaitClosed(t, "the upstream request's end", ended)
	}
}

// A response that breaks off upstream never looks complete to the client.
func TestBrokenUpstreamIsNoCleanEnd(t *testing.T) {
	for _, upstreamKind := range []func(*testing.T, http.HandlerFunc) *httptest.Server{upstreamFunc, upstreamTLS} {
		f := startFront(t, upstreamKind(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/length" {
				w.Header().Set("Content-Length", "100")
			}
			io.WriteString(w, "part")
			flush(w)
			panic(http.ErrAbortHandler)
		}))
		for _, path := range []string{followLog, "/chunked", "/length"} {
			t.Run(path, func(t *testing.T) {
				resp := f.do("GET", path, nil)
				body, err := io.ReadAll(resp.Body)
				if string(body) != "part" || err != io.ErrUnexpectedEOF {
					t.Errorf("got %q, %v, want a part and an unexpected EOF", body, err)
				}
			})
		}
	}
}

func TestConnectionServesOnAfterStream(t *testing.T) {
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		flush(w)
		io.WriteString(w, r.URL.String())
	}), func(o *proxy.Options, _ *clientcmdapi.Config) {
		o.SecurePort, o.BindAddress = proxy.AnyPort, "127.0.0.1"
	})
	requests := []string{followLog, "/api/v1/nodes/n/proxy/x", "/version", followLog}
	for _, tc := range []struct {
		name      string
		dial      func() *rawConn
		pipelined bool
	}{
		{"one by one", f.dial, false},
		{"one by one over TLS", f.dialTLS, false},
		{"pipelined", f.dial, true},
		{"pipelined over TLS", f.dialTLS, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := tc.dial()
			var ahead strings.Builder
			for _, path := range requests {
				fmt.Fprintf(&ahead, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n\r\n", path)
			}
			if tc.pipelined {
				c.send("%s", ahead.String())
			}
			for _, path := range requests {
				if !tc.pipelined {
					c.send("GET %s HTTP/1.1\nHost: localhost\nAuthorization: Bearer t\n\n", path)
				}
				if _, body := c.response(); body != path {
					t.Errorf("got %q, want %q", body, path)
				}
			}
		})
	}
}

// Bytes that a client sends during its stream are kept for later, up to a bound.
func TestFloodDuringStream(t *testing.T) {
	ended := make(chan struct{})
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/log") {
			return
		}
		flush(w)
		<-r.Context().Done()
		close(ended)
	}))
	c := f.dial()
	c.send("GET %s HTTP/1.1\nHost: localhost\n\n", followLog)
	c.head("GET")
	go c.Write(make([]byte, 1<<20))
	awaitClosed(t, "the stream's end", ended)
}

// An unread body must not be parsed as the next request.
func TestUnreadBodies(t *testing.T) {
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {}),
		func(o *proxy.Options, _ *clientcmdapi.Config) {
			o.SecurePort, o.BindAddress, o.Auth.AnonymousAuth = proxy.AnyPort, "127.0.0.1", false
		})
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
	t.Run("get with a body", func(t *testing.T) {
		c := f.dial()
		c.send("GET /version HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", len(smuggled), smuggled)
		c.response()
		c.send("GET /version HTTP/1.1\nHost: localhost\nConnection: close\n\n")
		c.response()
		if rest, _ := io.ReadAll(c.r); len(rest) > 0 {
			t.Errorf("got another response: %q", rest)
		}
	})
	t.Run("unauthorized", func(t *testing.T) {
		c := f.dialTLS()
		c.send("POST /api/v1/namespaces HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", len(smuggled), smuggled)
		resp, body := c.response()
		if resp.StatusCode != 401 ||
			body != `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized",`+
				`"reason":"Unauthorized","code":401}`+"\n" {
			t.Errorf("got %s %s", resp.Status, body)
		}
		c.send("GET /version HTTP/1.1\nHost: localhost\nConnection: close\n\n")
		if resp, _ := c.response(); resp.StatusCode != 401 {
			t.Errorf("got %s", resp.Status)
		}
		if rest, _ := io.ReadAll(c.r); len(rest) > 0 {
			t.Errorf("got another response: %q", rest)
		}
	})
	t.Run("answered before it was read", func(t *testing.T) {
		// Over HTTP/1.1, upstream would wait for the body.
		f := startFront(t, upstreamTLS(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}))
		r, w := io.Pipe()
		defer w.Close()
		go w.Write(make([]byte, upstream.MaxKeptBody))
		resp := f.do("POST", "/x", r)
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("got %s", resp.Status)
		}
		bodyOf(t, resp)
	})
}

// exec, attach, port-forward and WebSocket watches change the protocol and then own the connection.
func TestUpgrade(t *testing.T) {
	for _, upstreamKind := range []func(*testing.T, http.HandlerFunc) *httptest.Server{upstreamFunc, upstreamTLS} {
		f := startFront(t, upstreamKind(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") == "refused" {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			if r.Header.Get("Upgrade") != "SPDY/3.1" ||
				r.TLS != nil && r.Header.Get("Authorization") != "Bearer "+ownToken {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "SPDY/3.1")
			w.WriteHeader(http.StatusSwitchingProtocols)
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			io.Copy(c, rw) // until the client's side ends
			io.WriteString(c, "bye")
		}))
		t.Run("echo", func(t *testing.T) {
			c := f.dial()
			c.send("POST /api/v1/namespaces/ns/pods/web/exec?command=sh HTTP/1.1\nHost: localhost\n" +
				"Connection: Upgrade\nUpgrade: SPDY/3.1\nContent-Length: 0\n\nearly")
			resp := c.head("POST")
			if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "SPDY/3.1" ||
				resp.Header.Get("Connection") != "Upgrade" {
				t.Fatalf("got %s %v", resp.Status, resp.Header)
			}
			c.send("late")
			buf := make([]byte, 9)
			if _, err := io.ReadFull(c.r, buf); err != nil || string(buf) != "earlylate" {
				t.Fatalf("got %q, %v", buf, err)
			}
			c.Conn.(*net.TCPConn).CloseWrite()
			if rest, err := io.ReadAll(c.r); err != nil || string(rest) != "bye" {
				t.Errorf("got %q, %v", rest, err)
			}
		})
		t.Run("refused", func(t *testing.T) {
			c := f.dial()
			for range 2 {
				c.send("GET /x HTTP/1.1\nHost: localhost\nConnection: Upgrade\nUpgrade: refused\n\n")
				if resp, body := c.response(); resp.StatusCode != 403 || body != "no\n" {
					t.Fatalf("got %s %q", resp.Status, body)
				}
			}
		})
	}
}

// A client's token goes upstream without watchfan's token, and not over a connection with
// watchfan's certificate.
func TestIdentities(t *testing.T) {
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("watchfan", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := startFront(t, upstreamTLS(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%d certificates, %q, impersonating %q", len(r.TLS.PeerCertificates), r.Header["Authorization"],
			r.Header["Impersonate-User"])
	}), func(o *proxy.Options, c *clientcmdapi.Config) {
		c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: keyPEM}
	})
	for _, path := range []string{"/version", followLog} {
		if got, want := bodyOf(t, f.do("GET", path, nil)), `2 certificates, [], impersonating []`; got != want {
			t.Errorf("own identity: got %s, want %s", got, want)
		}
		got, want := bodyOf(t, f.do("GET", path, nil, "Authorization", "Bearer "+clientToken)),
			`0 certificates, ["Bearer client-token"], impersonating []`
		if got != want {
			t.Errorf("client's token: got %s, want %s", got, want)
		}
		got = bodyOf(t, f.do("GET", path, nil, "Authorization", "Bearer "+clientToken, "Impersonate-User", "jane"))
		if want := `0 certificates, ["Bearer client-token"], impersonating ["jane"]`; got != want {
			t.Errorf("client's token: got %s, want %s", got, want)
		}
	}
}

// A web page must not reach the cluster through the browser of someone who runs the proxy.
func TestInsecurePortIsForThisHost(t *testing.T) {
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {}))
	for _, tc := range []struct {
		host, lines string
		want        int
	}{
		{"localhost:8001", "", 200},
		{"[::1]:8001", "", 200},
		{"evil.example", "", 403},
		{"localhost.evil.example:8001", "", 403},

		{"localhost:8001", "Origin: http://localhost:8001\n", 200},
		{"LOCALHOST:8001", "Origin: http://localhost:8001\n", 200},
		{"127.0.0.1:8001", "Origin: http://127.0.0.1:8001\n", 200},
		{"[::1]:8001", "Origin: http://[::1]:8001\n", 200},
		{"localhost", "Origin: http://localhost\n", 200},
		{"localhost:80", "Origin: http://localhost\n", 200},
		{"localhost:8001", "Origin: https://evil.example\n", 403},
		{"localhost:8001", "Origin: null\n", 403},
		{"localhost:8001", "Origin: http://localhost:3000\n", 403},
		{"127.0.0.1:8001", "Origin: http://localhost:3000\n", 403},
		{"127.0.0.1:8001", "Origin: http://localhost:8001\n", 403},
		{"localhost:8001", "Origin: http://localhost\n", 403},
		{"localhost:8001", "Origin: https://localhost:8001\n", 403},
		{"localhost", "Origin: https://localhost\n", 403},
		{"localhost:8001", "Origin: http://localhost:8001\nOrigin: http://localhost:3000\n", 403},
		{"localhost:8001", "Origin: http://localhost:8001@evil.example\n", 403},

		{"localhost:8001", "Sec-Fetch-Site: none\nSec-Fetch-Mode: navigate\n", 200},
		{"localhost:8001", "Sec-Fetch-Site: same-origin\n", 200},
		{"localhost:8001", "Sec-Fetch-Site: same-site\n", 403},
		{"127.0.0.1:8001", "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: image\n", 403},
		{"127.0.0.1:8001", "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document\n" +
			"Sec-Fetch-User: ?1\n", 403},
		{"localhost:8001", "sec-fetch-site: cross-site\n", 403},
		{"localhost:8001", "Sec-Fetch-Site: anything new\n", 403},
		{"localhost:8001", "Sec-Fetch-Site: none\nSec-Fetch-Site: cross-site\n", 403},
		{"localhost:8001", "Sec-Fetch-Site: same-origin\nOrigin: http://localhost:3000\n", 403},
	} {
		c := f.dial()
		c.send("GET /version HTTP/1.1\nHost: %s\n%s\n", tc.host, strings.ReplaceAll(tc.lines, "\n", "\r\n"))
		if resp, _ := c.response(); resp.StatusCode != tc.want {
			t.Errorf("Host %s, %q: got %d, want %d", tc.host, tc.lines, resp.StatusCode, tc.want)
		}
	}
}

func TestMalformedRequests(t *testing.T) {
	f := startServer(t, nil, func(s *proxy.Server) { s.SetHeaderTimeout(200 * time.Millisecond) })
	for _, tc := range []struct {
		name, send string
		want       int
	}{
		{"garbage", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", 400},
		{"no path", "GET pods HTTP/1.1\nHost: localhost\n\n", 400},
		{"bad escape", "GET /%zz HTTP/1.1\nHost: localhost\n\n", 400},
		{"two lengths", "GET / HTTP/1.1\nHost: localhost\nContent-Length: 1\nContent-Length: 2\n\nab", 400},
		{"long header", "GET / HTTP/1.1\nHost: localhost\nX: " + strings.Repeat("x", 2_000_000) + "\n\n", 431},
		{"slow header", "GET / HTTP/1.1\nHost: loc", 408},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := f.dial()
			c.send("%s", strings.ReplaceAll(tc.send, "\n", "\r\n"))
			resp, body := c.response()
			if resp.StatusCode != tc.want ||
				!strings.HasPrefix(body, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`) {
				t.Errorf("got %s %s", resp.Status, body)
			}
			if resp.Header.Get("Audit-Id") == "" || resp.Header.Get("Cache-Control") != "no-cache, private" ||
				resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("got header %v", resp.Header)
			}
			if _, err := c.r.ReadByte(); err == nil {
				t.Error("the connection goes on")
			}
		})
	}
}

func TestUnreachableUpstream(t *testing.T) {
	f := startFront(t, nil)
	for _, path := range []string{"/version", followLog} {
		resp := f.do("GET", path, nil, "Audit-Id", "abc", "User-Agent", "test")
		want := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"kube-apiserver ` +
			`cannot be reached through this proxy at the moment; ` +
			`if this lasts, see the proxy's /readyz and its log for the reason","reason":"ServiceUnavailable",` +
			`"details":{"retryAfterSeconds":1},"code":503}` + "\n"
		if body := bodyOf(t, resp); resp.StatusCode != 503 || body != want {
			t.Errorf("got %s %s", resp.Status, body)
		}
		if resp.Header.Get("Retry-After") != "1" || resp.Header.Get("Audit-Id") != "abc" {
			t.Errorf("got header %v", resp.Header)
		}
	}
	// A client may repeat a write that cannot have arrived. It must not repeat one that may have
	// arrived.
	resp := f.do("POST", "/x", strings.NewReader("{}"))
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("got %s %v", resp.Status, resp.Header)
	}
	f = startFront(t, upstreamFunc(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	if resp := f.do("POST", "/x", strings.NewReader("{}")); resp.StatusCode != 503 ||
		resp.Header.Get("Retry-After") != "" {
		t.Errorf("got %s %v", resp.Status, resp.Header)
	}
}

func TestBodilessAndOldClients(t *testing.T) {
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(204)
		case "/304":
			w.WriteHeader(304)
		case "/length":
			w.Header().Set("Content-Length", "4")
			io.WriteString(w, "body")
		default:
			flush(w)
			io.WriteString(w, "body")
		}
	}))
	c := f.dial()
	for _, tc := range []struct{ method, path, body string }{
		{"HEAD", "/length", ""}, {"HEAD", "/chunked", ""}, {"HEAD", followLog, ""}, {"GET", "/204", ""},
		{"GET", "/304", ""}, {"GET", "/length", "body"},
	} {
		c.send("%s %s HTTP/1.1\nHost: localhost\n\n", tc.method, tc.path)
		resp := c.head(tc.method)
		if body := bodyOf(t, resp); body != tc.body || tc.path == "/length" && resp.ContentLength != 4 {
			t.Errorf("%s %s: got %q, Content-Length %d", tc.method, tc.path, body, resp.ContentLength)
		}
	}
	for _, path := range []string{"/chunked", followLog} { // HTTP/1.0 knows no chunks
		c := f.dial()
		c.send("GET %s HTTP/1.0\nHost: localhost\nConnection: keep-alive\n\n", path)
		if raw, err := io.ReadAll(c.r); err != nil || !strings.HasSuffix(string(raw), "\r\n\r\nbody") ||
			strings.Contains(string(raw), "chunked") {
			t.Errorf("got %q, %v", raw, err)
		}
	}
}

// When the proxy stops, it first says that it is not ready. Then idle connections and streams end,
// and a request that is being answered is answered to its end.
func TestShutdown(t *testing.T) {
	ended := make(chan struct{})
	release := make(chan struct{})
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/log"):
			flush(w)
			<-r.Context().Done()
			close(ended)
		case r.URL.Path == "/slow":
			<-release
			io.WriteString(w, "done")
		}
	}), func(o *proxy.Options, _ *clientcmdapi.Config) {
		o.AdminPort = proxy.AnyPort
		o.ShutdownDelayDuration = 300 * time.Millisecond
		o.ShutdownTimeout = 2 * proxytest.Patience
	})
	stream, slow, idle, silent := f.dial(), f.dial(), f.dial(), f.dial()
	stream.send("GET %s HTTP/1.1\nHost: localhost\n\n", followLog)
	logs := stream.head("GET")
	slow.send("GET /slow HTTP/1.1\nHost: localhost\n\n")
	idle.send("GET /version HTTP/1.1\nHost: localhost\n\n")
	idle.response()
	_ = silent

	begin := time.Now()
	stopped := make(chan struct{})
	go func() { f.stop(); close(stopped) }()
	time.Sleep(100 * time.Millisecond)
	resp, err := http.Get("http://" + f.admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if body := bodyOf(t, resp); resp.StatusCode != 500 || !strings.Contains(body, "[-]shutdown failed") {
		t.Errorf("while stopping got %s %s", resp.Status, body)
	}
	awaitClosed(t, "the stream's end", ended)
	if _, err := io.ReadAll(logs.Body); err != io.ErrUnexpectedEOF {
		t.Errorf("the stream ended with %v, want an unexpected EOF", err)
	}
	close(release)
	if resp, body := slow.response(); body != "done" || !resp.Close {
		t.Errorf("got %q, Connection %v", body, resp.Header)
	}
	awaitClosed(t, "the stop", stopped)
	if d := time.Since(begin); d < 300*time.Millisecond {
		t.Errorf("stopped after %s, before the delay", d)
	}
	http.DefaultClient.CloseIdleConnections()
	awaitGoroutines(t)
}

func TestHealth(t *testing.T) {
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {}),
		func(o *proxy.Options, _ *clientcmdapi.Config) {
			o.AdminPort = proxy.AnyPort
			o.PortsFile = filepath.Join(o.Downstream.CertDir, "ports")
		})
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + f.admin + path)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, bodyOf(t, resp)
	}
	defer http.DefaultClient.CloseIdleConnections()
	if code, body := get("/livez"); code != 200 || body != "ok" {
		t.Errorf("/livez: got %d %s", code, body)
	}
	for deadline := time.Now().Add(proxytest.Patience); ; time.Sleep(10 * time.Millisecond) {
		code, body := get("/readyz?verbose")
		if code == 200 && strings.HasPrefix(body, "[+]ping ok\n") && strings.Contains(body, "[+]upstream ok\n") &&
			strings.HasSuffix(body, "readyz check passed\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("/readyz: got %d %s", code, body)
		}
	}
	code, body := get("/metrics")
	if code != 200 || !strings.Contains(body, "watchfan_passthrough_requests_in_flight 0\n") ||
		!strings.Contains(body, "go_goroutines") {
		t.Errorf("/metrics: got %d %s", code, body)
	}
	if code, _ := get("/debug/pprof/heap"); code != 200 {
		t.Errorf("/debug/pprof/heap: got %d", code)
	}
	if code, _ := get("/other"); code != 404 {
		t.Errorf("/other: got %d", code)
	}
}

func TestPortsFile(t *testing.T) {
	var name string
	f := startFront(t, nil, func(o *proxy.Options, _ *clientcmdapi.Config) {
		o.AdminPort = proxy.AnyPort
		name = filepath.Join(o.Downstream.CertDir, "ports")
		o.PortsFile = name
	})
	got, err := os.ReadFile(name)
	want := fmt.Sprintf(`{"insecure":%q,"admin":%q,"pid":%d}`+"\n", f.insecure, f.admin, os.Getpid())
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// The kubeconfig of a gateway has a path, as https://gateway/clusters/a. A request stays below it, even if
// the gateway resolves dots. It carries the proxy's credentials.
func TestBasePath(t *testing.T) {
	var got atomic.Value
	f := startFront(t, upstreamFunc(t, func(_ http.ResponseWriter, r *http.Request) {
		if at := path.Clean(r.URL.Path); at != "/clusters/a/readyz" {
			got.Store(at)
		}
	}), func(_ *proxy.Options, config *clientcmdapi.Config) { config.Clusters["c"].Server += "/clusters/a" })
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
			got.Store("")
			code := http.StatusNotFound
			if want != "" {
				code = http.StatusOK
			}
			if resp := f.do(method, target, nil); resp.StatusCode != code || got.Load() != want {
				t.Errorf("%s %s: %s, upstream got %q, want %q", method, target, resp.Status, got.Load(), want)
			}
		}
	}
}
