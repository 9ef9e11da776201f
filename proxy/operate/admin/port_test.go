package admin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// testPort is a port that serves on a loopback address.
type testPort struct {
	*Port
	t      *testing.T
	addr   string
	client *http.Client
	served chan error // what Serve has returned

	mu  sync.Mutex
	log bytes.Buffer
}

func (p *testPort) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(line)
}

func (p *testPort) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// startPort serves until the test ends. All requests are local unless config says otherwise.
func startPort(t *testing.T, config Config) *testPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startPortOn(t, ln, &http.Transport{}, config)
}

// startPipes is startPort in a bubble.
func startPipes(t *testing.T, config Config) (*testPort, *proxytest.Pipes) {
	t.Helper()
	pipes := proxytest.NewPipes()
	p := startPortOn(t, fromHere{pipes}, &http.Transport{DialContext: pipes.Dial}, config)
	p.addr = "localhost"
	return p, pipes
}

// fromHere is a listener whose clients are on this host.
type fromHere struct{ net.Listener }

func (l fromHere) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return connFromHere{c}, err
}

type connFromHere struct{ net.Conn }

func (connFromHere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func startPortOn(t *testing.T, ln net.Listener, transport *http.Transport, config Config) *testPort {
	t.Helper()
	config.Metrics = metrics.NewSet()
	if config.Local == nil {
		config.Local = func(*http.Request) bool { return true }
	}
	p := &testPort{t: t, addr: ln.Addr().String(), client: &http.Client{Transport: transport},
		served: make(chan error, 1)}
	p.Port = New(config, exchange.NewGuard(config.Metrics,
		slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	go func() { p.served <- p.Serve(ln) }()
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		p.Shutdown()
		if err := <-p.served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return p
}

// do sends a request and returns the response with its body.
func (p *testPort) do(method, path string, body io.Reader) (*http.Response, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.addr+path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatalf("%s: %v", path, err)
	}
	return resp, string(content)
}

// raw sends bytes and returns everything that arrives until the connection ends.
func (p *testPort) raw(bytes string) string {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(steady.Patience))
	_, _ = io.WriteString(conn, bytes)
	got, _ := io.ReadAll(conn)
	return string(got)
}

// A panic of a page is answered with 500, logged and counted. Other requests continue.
func TestPanic(t *testing.T) {
	p := startPort(t, Config{State: func() diagnose.DebugState { panic("page") }})
	resp, body := p.do(http.MethodGet, "/debug/lanes", nil)
	if resp.StatusCode != http.StatusInternalServerError || !resp.Close || body != exchange.ErrPanicked.Error()+"\n" {
		t.Errorf("%s, Connection: close %t, %q; want 500 and the connection's end", resp.Status, resp.Close, body)
	}
	if n := p.guard.Panics.Get(); n != 1 || !strings.Contains(p.logged(), "Handler panicked") {
		t.Errorf("%d panics counted, logged %s", n, p.logged())
	}
	if resp, _ := p.do(http.MethodGet, "/livez", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("/livez: %s", resp.Status)
	}
}

// A body of more than 4 KiB is rejected if its length is announced. Otherwise it is not read to its
// end.
func TestBodies(t *testing.T) {
	p := startPort(t, Config{Profiling: true})
	long := strings.Repeat("0x1+", maxBodyBytes/4+1)
	resp, _ := p.do(http.MethodPost, "/livez", strings.NewReader(long))
	if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
		t.Errorf("a long body: %s, Connection: close %t", resp.Status, resp.Close)
	}
	if resp, body := p.do(http.MethodPost, "/debug/pprof/symbol",
		io.MultiReader(strings.NewReader(long))); !strings.Contains(body, "request body too large") {
		t.Errorf("a long chunked body: %s %s", resp.Status, body)
	}
	if resp, body := p.do(http.MethodPost, "/debug/pprof/symbol",
		strings.NewReader("0x1")); resp.StatusCode != http.StatusOK || body != "num_symbols: 1\n" {
		t.Errorf("a short body: %s %s", resp.Status, body)
	}
}

// Requests that net/http itself rejects are answered. The log quotes nothing of them.
func TestMalformed(t *testing.T) {
	p := startPort(t, Config{})
	for head, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer se cret\x00\r\n\r\n": "HTTP/1.1 400",
		"secret\r\n\r\n": "HTTP/1.1 400",
		"GET / HTTP/1.1\r\nHost: localhost\r\nX: secret" + strings.Repeat("x", 3*maxHeaderBytes) +
			"\r\n\r\n": "HTTP/1.1 431",
		"GET / HTTP/1.1\r\nAuthorization: secret\r\n\r\n":                      "HTTP/1.1 400",
		"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: secret\r\n\r\n": "HTTP/1.1 400",
	} {
		if got := p.raw(head); !strings.HasPrefix(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%.60q: %q, want %s", head, got, want)
		}
	}
	if strings.Contains(p.logged(), "secret") || strings.Contains(p.logged(), "se cret") {
		t.Errorf("logged %s", p.logged())
	}
}

// A profile may last longer than the timeouts of the port.
func TestLongProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := startPipes(t, Config{Profiling: true})
		began := time.Now()
		resp, body := p.do(http.MethodGet, "/debug/pprof/allocs?seconds=600", nil)
		if took := time.Since(began); resp.StatusCode != http.StatusOK || body == "" || took != 10*time.Minute {
			t.Errorf("%s, %d bytes, after %s", resp.Status, len(body), took)
		}
	})
}

// Shutdown waits for a request that is being answered, and cuts off one that takes too long.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p, pipes := startPipes(t, Config{Profiling: true, State: func() diagnose.DebugState {
			<-release
			return diagnose.DebugState{}
		}})
		profile := make(chan error, 1)
		go func() {
			resp, err := p.client.Get("http://" + p.addr + "/debug/pprof/allocs?seconds=60")
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			profile <- err
		}()
		page := make(chan int, 1)
		go func() {
			resp, err := p.client.Get("http://" + p.addr + "/debug/lanes")
			if err != nil {
				page <- 0
				return
			}
			resp.Body.Close()
			page <- resp.StatusCode
		}()
		synctest.Wait()
		began := time.Now()
		stopped := make(chan struct{})
		go func() { defer close(stopped); p.Shutdown() }()
		time.Sleep(closingTime / 2)
		if _, err := pipes.Dial(t.Context(), "", ""); err == nil {
			t.Error("the port is still open")
		}
		close(release)
		if code := <-page; code != http.StatusOK {
			t.Errorf("the page: %d", code)
		}
		if err := <-profile; err == nil {
			t.Error("the profile was not cut off")
		}
		<-stopped
		if d := time.Since(began); d != closingTime {
			t.Errorf("stopped after %s, want %s", d, closingTime)
		}
	})
}

// A port that is shut down before it serves closes its listener.
func TestShutdownBeforeServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{}, proxytest.Guard())
	p.Shutdown()
	if err := p.Serve(ln); err != nil {
		t.Error(err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener: %v", err)
	}
}

// Pages are found by their paths, with GET and with HEAD.
func TestPaths(t *testing.T) {
	p := startPort(t, Config{Profiling: true, State: func() diagnose.DebugState { return diagnose.DebugState{} }, History: diagnose.NewHistory(nil)})
	const text, html = "text/plain; charset=utf-8", "text/html; charset=utf-8"
	for path, want := range map[string]struct {
		code      int
		mediaType string
	}{
		"/livez":                {200, text},
		"/healthz":              {200, text},
		"//livez":               {200, text},
		"/debug/../livez":       {200, text},
		"/%6civez?x":            {200, text},
		"/livez/":               {404, text},
		"/livez/x":              {404, text},
		"/LIVEZ":                {404, text},
		"/metrics":              {200, "text/plain; version=0.0.4; charset=utf-8"},
		"/":                     {200, html},
		"/statusz":              {200, html},
		"/statusz/script.js":    {200, "text/javascript; charset=utf-8"},
		"/statusz/nosuch":       {404, text},
		"/debug":                {404, text},
		"/debug/lanes":          {200, text},
		"/debug/lanes?%zz":      {400, text},
		"/debug/history":        {200, "application/json"},
		"/debug/history?x=1":    {400, text},
		"/debug/pprof":          {200, html},
		"/debug/pprof/":         {200, html},
		"/debug/pprof/heap":     {200, "application/octet-stream"},
		"/debug/pprof/heap/":    {200, "application/octet-stream"},
		"/debug/pprof/cmdline":  {200, text},
		"/debug/pprof/nosuch":   {404, text},
		"/debug/pprofx":         {404, text},
		"/debug/pprof/../lanes": {200, text},
	} {
		resp, body := p.do(http.MethodGet, path, nil)
		if resp.StatusCode != want.code || resp.Header.Get("Content-Type") != want.mediaType {
			t.Errorf("%s: %s, %s; want %d, %s", path, resp.Status, resp.Header.Get("Content-Type"),
				want.code, want.mediaType)
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: its type may be guessed", path)
		}
		if strings.HasPrefix(path, "/metrics") || strings.HasPrefix(path, "/debug/") {
			continue // changes from one request to the next
		}
		head, none := p.do(http.MethodHead, path, nil)
		if head.StatusCode != want.code || none != "" || head.Header.Get("Content-Length") != fmt.Sprint(len(body)) {
			t.Errorf("HEAD %s: %s, Content-Length %s, %q", path, head.Status, head.Header.Get("Content-Length"), none)
		}
	}
	for path, want := range map[string]int{"/livez": 200, "/": 405, "/statusz": 405, "/statusz/icon.svg": 405} {
		resp, _ := p.do(http.MethodPost, path, nil)
		if allow := resp.Header.Get("Allow"); resp.StatusCode != want || (allow == "GET, HEAD") != (want == 405) {
			t.Errorf("POST %s: %s, Allow %q", path, resp.Status, allow)
		}
	}
}
