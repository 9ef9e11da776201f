package bubble

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// The proxy's own token, and that of the clients of these tests.
const (
	OwnToken    = "own-token"
	ClientToken = "client-token"
)

// Targets of requests for ConfigMaps.
const (
	CMs      = "/api/v1/configmaps"
	Fresh    = CMs + "?watch=1&allowWatchBookmarks=true"                   // the current state, then events
	AnyState = CMs + "?watch=1&allowWatchBookmarks=true&resourceVersion=0" // any state, then events
	Since    = CMs + "?watch=1&allowWatchBookmarks=true&resourceVersion=%d"
)

// Proxy is a proxy in front of a scripted kube-apiserver.
type Proxy struct {
	T      *testing.T
	Up     *proxytest.Server
	CMs    *proxytest.Collection // Up's ConfigMaps
	Server *proxy.Server
	Log    *Log
	// Stop stops the proxy and waits for it. The test's end does the same.
	Stop func()
}

// Start runs a proxy in front of up until the test ends. Waits for freshness do not end before the
// tests' patience, unless change says otherwise.
func Start(t *testing.T, up *proxytest.Server, change ...func(*proxy.Options)) *Proxy {
	t.Helper()
	opts := proxy.NewOptions()
	opts.InsecurePort, opts.SecurePort, opts.AdminPort = proxy.AnyPort, 0, 0
	opts.ShutdownTimeout = 2 * time.Second
	opts.Lane.FreshnessTimeout = proxytest.Patience
	for _, c := range change {
		c(&opts)
	}
	if err := opts.Validate(); err != nil {
		t.Fatal(err)
	}
	p := &Proxy{T: t, Up: up, CMs: up.Collection(proxytest.ConfigMaps), Log: &Log{t: t}}
	cfg := &rest.Config{Host: up.URL, BearerToken: OwnToken, Dial: up.Pipes.Dial}
	if up.TLS != nil {
		cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw})
	} else {
		cfg.Insecure = true // siblings' certificates count all the same
	}
	server, err := proxy.NewFor(cfg, opts, slog.New(slog.NewTextHandler(p.Log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	p.Server = server
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.RunDetached(ctx) }()
	p.Stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	t.Cleanup(p.Stop)
	return p
}

// Watch opens a watch as a client of the insecure port. The target is formatted with args.
func (p *Proxy) Watch(target string, args ...any) *proxytest.Watcher {
	p.T.Helper()
	return p.Send(Request{Target: fmt.Sprintf(target, args...)}).Watch()
}

// Get sends a GET as a client of the insecure port, and reads the whole answer.
func (p *Proxy) Get(target string, header ...string) (*http.Response, string) {
	p.T.Helper()
	return p.Send(Request{Target: target, Header: header}).Read()
}

// RequestOf returns a request of the secure port that has come over a connection of another server.
func RequestOf(r *http.Request) Request {
	ask := Request{Method: r.Method, Target: r.URL.RequestURI(), TLS: r.TLS}
	for name, values := range r.Header {
		for _, value := range values {
			ask.Header = append(ask.Header, name, value)
		}
	}
	return ask
}

// Admin sends a GET from this host to the admin port, and reads the whole answer.
func (p *Proxy) Admin(target string, header ...string) (*http.Response, string) {
	p.T.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(p.T.Context(), http.MethodGet, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	r.Host, r.RemoteAddr = cmp.Or(r.Header.Get("Host"), "127.0.0.1"), "127.0.0.1:1"
	p.Server.Admin().ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

// AdminJSON sends a GET to the admin port, and reads the answer, which must be JSON, into a value.
func (p *Proxy) AdminJSON(target string, into any) {
	p.T.Helper()
	resp, body := p.Admin(target, "Accept", "application/json")
	err := json.Unmarshal([]byte(body), into)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		p.T.Fatalf("%s: %s, %v: %s", target, resp.Status, err, body)
	}
}

// Watchers returns the open watches that a query of /debug/watchers selects.
func (p *Proxy) Watchers(query string) (list diagnose.WatcherList) {
	p.T.Helper()
	p.AdminJSON("/debug/watchers?"+query, &list)
	return list
}

// Direct sends a GET to kube-apiserver without the proxy, and returns the body of the answer.
func (p *Proxy) Direct(target string) string {
	p.T.Helper()
	req, err := http.NewRequestWithContext(p.T.Context(), http.MethodGet, p.Up.URL+target, nil)
	if err != nil {
		p.T.Fatal(err)
	}
	resp, err := (&http.Transport{DialContext: p.Up.Pipes.Dial, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		p.T.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.T.Fatal(err)
	}
	return string(body)
}

// Passed fails the test unless exactly n requests were passed through.
func (p *Proxy) Passed(n int) {
	p.T.Helper()
	if got := p.Up.Count(proxytest.Client); got != n {
		p.T.Errorf("%d requests were passed through, want %d", got, n)
	}
}

// Until waits until a condition holds.
func (p *Proxy) Until(what string, ok func() bool) {
	p.T.Helper()
	//testlint:allow timer all of this is in a bubble
	for deadline := time.Now().Add(proxytest.Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.T.Fatalf("no %s", what)
		}
	}
}

// AwaitLog waits for a line of the log that contains all of parts.
func (p *Proxy) AwaitLog(parts ...string) {
	p.T.Helper()
	p.Until(fmt.Sprintf("log line %q", parts), func() bool { return len(p.Log.With(parts...)) > 0 })
}

// Log keeps the lines of the proxy's log.
type Log struct {
	t     *testing.T
	mu    sync.Mutex
	lines []string
}

// NewLog returns a log that the test's output has as well.
func NewLog(t *testing.T) *Log { return &Log{t: t} }

func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return l.t.Output().Write(line)
}

// With returns the lines that contain all of parts.
func (l *Log) With(parts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, line := range l.lines {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			lines = append(lines, line)
		}
	}
	return lines
}
