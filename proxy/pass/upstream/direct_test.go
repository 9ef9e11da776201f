package upstream

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// newDirect returns a direct to a server with a handler, which gets each request with what it came over,
// as "HTTP/1 on 127.0.0.1:1234". configure may change the server before it starts.
func newDirect(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, over string),
	configure func(*httptest.Server, *direct)) (*direct, *httptest.Server) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle(w, r, fmt.Sprintf("HTTP/%d on %s", r.ProtoMajor, r.RemoteAddr))
	}))
	s.EnableHTTP2, s.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	d := &direct{silence: time.Hour, patience: time.Hour}
	if configure != nil {
		configure(s, d)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	u, err := NewUpstream(&rest.Config{Host: s.URL, BearerToken: "proxy", TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}})
	if err != nil {
		t.Fatal(err)
	}
	d.below = httpTransport(u.known)
	t.Cleanup(d.CloseIdleConnections)
	return d, s
}

// ask sends a brief request, and returns the body of the answer.
func ask(ctx context.Context, d *direct, method, url, body string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(Brief(ctx), method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	resp, err := d.RoundTrip(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp, string(got), err
}

// Brief requests share one connection of HTTP/1.1, whatever their answers, and all others one of HTTP/2.
// Only an answer that HTTP/2 would bring without a length has none.
func TestDirect(t *testing.T) {
	var mu sync.Mutex
	var ways []string
	d, s := newDirect(t, func(w http.ResponseWriter, r *http.Request, over string) {
		mu.Lock()
		ways = append(ways, over)
		mu.Unlock()
		var n int
		_, _ = fmt.Sscan(r.URL.Query().Get("n"), &n)
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Got", r.Method+string(body))
		if n == 0 {
			w.WriteHeader(http.StatusNoContent)
		}
		for range n {
			_, _ = io.WriteString(w, "x")
		}
	}, nil)
	for _, n := range []int{0, 1, 2048, 2049, settled, settled + 1, 100_000} {
		url := fmt.Sprintf("%s/?n=%d", s.URL, n)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url, strings.NewReader("a body"))
		if err != nil {
			t.Fatal(err)
		}
		usual, err := d.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, usual.Body)
		usual.Body.Close()
		resp, body, err := ask(t.Context(), d, http.MethodPatch, url, "a body")
		if err != nil {
			t.Fatal(err)
		}
		if len(body) != n || resp.ContentLength != usual.ContentLength || resp.StatusCode != usual.StatusCode ||
			resp.Header.Get("Got") != "PATCHa body" {
			t.Errorf("%d bytes: got %d, length %d (over HTTP/2 %d), %s, %v",
				n, len(body), resp.ContentLength, usual.ContentLength, resp.Status, resp.Header)
		}
	}
	slices.Sort(ways)
	ways = slices.Compact(ways)
	if len(ways) != 2 || !strings.HasPrefix(ways[0], "HTTP/1") || !strings.HasPrefix(ways[1], "HTTP/2") {
		t.Errorf("the requests came over %q, want one connection of each", ways)
	}
}

// A read whose connection breaks before anything of the answer has come is sent again. A write is not,
// because it may have taken effect. No part of an answer passes for the whole.
func TestDirectBreaks(t *testing.T) {
	var mu sync.Mutex
	came := make(map[string]int)
	d, s := newDirect(t, func(w http.ResponseWriter, r *http.Request, over string) {
		mu.Lock()
		defer mu.Unlock()
		came[r.Method+r.URL.Path]++
		switch {
		case r.ProtoMajor == 2:
		case r.URL.Path == "/part":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
		case r.URL.Path == "/chunks":
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			fallthrough
		case r.URL.Path == "/break":
			panic(http.ErrAbortHandler)
		}
	}, nil)
	for _, c := range []struct {
		method, path string
		breaks       bool
		times        int // so often the server gets the request
	}{
		{http.MethodGet, "/well", false, 1},
		{http.MethodGet, "/break", false, 2},
		{http.MethodPut, "/break", true, 1},
		{http.MethodGet, "/part", true, 1},
		{http.MethodGet, "/chunks", true, 1},
		{http.MethodPut, "/well", false, 1},
	} {
		_, body, err := ask(t.Context(), d, c.method, s.URL+c.path, "")
		mu.Lock()
		n := came[c.method+c.path]
		mu.Unlock()
		if (err != nil) != c.breaks || n != c.times {
			t.Errorf("%s %s: got %q, %v, and the server got it %d times", c.method, c.path, body, err, n)
		}
	}
}

// A connection that the server has closed is not used, so no write is lost with it. A connection ends with
// its request, and leaves its place to others.
func TestDirectEnds(t *testing.T) {
	reached, left := make(chan struct{}), make(chan struct{})
	d, s := newDirect(t, func(w http.ResponseWriter, r *http.Request, over string) {
		if r.URL.Path == "/wait" {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the connection ends
			close(reached)
			<-r.Context().Done()
			close(left)
		}
	}, nil)
	send := func(path string) error {
		_, _, err := ask(t.Context(), d, http.MethodPost, s.URL+path, "a body")
		return err
	}
	if err := send("/"); err != nil {
		t.Fatal(err)
	}
	s.CloseClientConnections() // sends FIN before it returns
	for range 3 {
		if err := send("/"); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		cancel()
	}()
	if _, _, err := ask(ctx, d, http.MethodPost, s.URL+"/wait", "a body"); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that was cancelled: %v", err)
	}
	<-left
	if err := send("/"); err != nil {
		t.Error(err)
	}
	d.CloseIdleConnections()
	if d.open != 0 || len(d.idle) != 0 || d.expiry != nil {
		t.Errorf("%d connections are open, %d of them idle", d.open, len(d.idle))
	}
}

// A request waits as long as the server still makes connections. It fails when the server no longer does,
// as a process that has been stopped.
func TestDirectSilence(t *testing.T) {
	gate := make(chan net.Conn) // connections to the server, of which the test says whether they are served
	dialled := make(chan struct{}, 100)
	d, s := newDirect(t, func(w http.ResponseWriter, r *http.Request, over string) {
		if r.URL.Path == "/wait" {
			for range 3 { // two more connections than its own
				<-dialled
			}
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}, func(s *httptest.Server, d *direct) {
		d.silence = time.Millisecond
		s.Listener = &gatedListener{s.Listener, gate, dialled}
	})
	if _, _, err := ask(t.Context(), d, http.MethodPost, s.URL+"/wait", ""); err != nil {
		t.Errorf("a request to a server that answers others: %v", err)
	}
	close(gate)
	d.patience = time.Millisecond
	if _, _, err := ask(t.Context(), d, http.MethodPost, s.URL+"/stopped", ""); err == nil {
		t.Error("no error of a request to a server that answers nobody")
	}
}

// A server that is ending makes no connections any more, and still answers what has come.
func TestDirectDrains(t *testing.T) {
	refused := make(chan struct{}, 2)
	var d *direct
	var s *httptest.Server
	d, s = newDirect(t, func(w http.ResponseWriter, r *http.Request, over string) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = s.Listener.Close()
		for range 2 {
			select {
			case <-refused:
			case <-r.Context().Done():
			}
		}
	}, func(_ *httptest.Server, d *direct) { d.silence, d.patience = time.Millisecond, time.Hour })
	transport := httpTransport(d.below)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			select {
			case refused <- struct{}{}:
			default: // it has answered
			}
		}
		return c, err
	}
	if resp, _, err := ask(t.Context(), d, http.MethodPost, s.URL, "a body"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("got %v", err)
	}
}

// gatedListener accepts no connection any more once gate is closed, but the kernel still does.
type gatedListener struct {
	net.Listener
	gate    chan net.Conn
	dialled chan struct{}
}

func (l *gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.dialled <- struct{}{}
	select {
	case <-l.gate:
		return silentConn{c}, nil
	default:
		return c, nil
	}
}

// silentConn is a connection on which nothing comes.
type silentConn struct{ net.Conn }

func (c silentConn) Read([]byte) (int, error) {
	var p [64]byte
	for {
		if _, err := c.Conn.Read(p[:]); err != nil {
			return 0, err
		}
	}
}
