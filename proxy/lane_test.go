package proxy_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// fan is a proxy in front of a scripted kube-apiserver.
type fan struct {
	t                *testing.T
	up               *proxytest.Server
	cms              *proxytest.Collection // up's ConfigMaps
	log              *logLines
	insecure, secure string // URLs
	admin            string // URL
	server           *proxy.Server
	stop             func() // stops the proxy and waits for it
}

// startFan runs a proxy in front of up.
func startFan(t *testing.T, up *proxytest.Server, change ...func(*proxy.Options)) *fan {
	t.Helper()
	cluster := clientcmdapi.Cluster{Server: up.URL}
	if up.TLS != nil {
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: up.Certificate().Raw})
	}
	opts := optionsFor(t, cluster, func(o *proxy.Options, _ *clientcmdapi.Config) {
		for _, c := range change {
			c(o)
		}
	})
	f := &fan{t: t, up: up, cms: up.Collection(proxytest.ConfigMaps), log: &logLines{out: t.Output()}}
	server, err := proxy.New(opts, slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	f.insecure, f.secure, f.admin = "http://"+server.InsecureAddr(), "https://"+server.SecureAddr(),
		"http://"+server.AdminAddr()
	f.server, f.stop = server, runServer(t, server)
	return f
}

// logLines keeps the lines of the log.
type logLines struct {
	out   io.Writer
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return l.out.Write(p)
}

// with returns the lines that contain all of parts.
func (l *logLines) with(parts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, line := range l.lines {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (f *fan) awaitLog(parts ...string) {
	f.t.Helper()
	f.until(fmt.Sprintf("log line %q", parts), func() bool { return len(f.log.with(parts...)) > 0 })
}

// until polls until a condition holds.
func (f *fan) until(what string, ok func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(proxytest.Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("no %s", what)
		}
	}
}

const (
	cmsPath  = "/api/v1/configmaps"
	fresh    = cmsPath + "?watch=1&allowWatchBookmarks=true"                   // the current state, then events
	anyState = cmsPath + "?watch=1&allowWatchBookmarks=true&resourceVersion=0" // any state, then events
)

// watch opens a watch as a client of the insecure port.
func (f *fan) watch(path string, args ...any) *proxytest.Watcher {
	f.t.Helper()
	w := proxytest.Open(f.t, f.insecure+fmt.Sprintf(path, args...))
	if w.Code != http.StatusOK {
		f.t.Fatalf("GET %s: got status %d", path, w.Code)
	}
	return w
}

// get sends a GET to the insecure port.
func (f *fan) get(path string, header ...string) (*http.Response, string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.insecure+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("User-Agent", proxytest.ClientAgent)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp, bodyOf(f.t, resp)
}

// passed fails the test unless exactly n requests were passed through.
func (f *fan) passed(n int) {
	f.t.Helper()
	if got := f.up.Count(proxytest.Client); got != n {
		f.t.Errorf("%d requests were passed through, want %d", got, n)
	}
}

func wantStrings(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// A resource is watched once for any number of clients. Its lane starts with the first of them.
func TestLaneOneUpstreamWatch(t *testing.T) {
	for name, server := range map[string]func(testing.TB) *proxytest.Server{"http1": proxytest.NewServer,
		"http2": proxytest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			f := startFan(t, server(t))
			f.cms.Put("ns", "a", "1")
			if n := f.up.Count(proxytest.WatchList) + f.up.Count(proxytest.Form); n != 0 {
				t.Fatalf("%d requests before the first client", n)
			}
			var wg sync.WaitGroup
			watchers := make([]*proxytest.Watcher, 20)
			for i := range watchers {
				wg.Go(func() {
					path := anyState
					if i%2 == 0 {
						path += "&labelSelector=app"
					}
					watchers[i], _ = proxytest.TryOpen(t, f.insecure+path)
				})
			}
			wg.Wait()
			rv := f.cms.Put("ns", "b", "1", "app", "x")
			for i, w := range watchers {
				if w == nil {
					t.Fatal("watch could not be opened")
				}
				w.AwaitVersion(rv)
				want := []string{"ADDED ns/a 101", "END 101", "ADDED ns/b 102"}
				if i%2 == 0 {
					want = want[1:]
				}
				wantStrings(t, "watch", w.Strings(), want...)
			}
			forms, lists, open := f.up.Count(proxytest.Form), f.up.Count(proxytest.WatchList),
				f.up.Open(proxytest.WatchList)
			if forms != 1 || lists != 1 || open != 1 {
				t.Errorf("%d empty lists, %d WatchLists, %d of them open; want 1 each", forms, lists, open)
			}
			f.passed(0)
		})
	}
}

// A lane without clients stops; the next client starts it again.
func TestLaneStopsWhenIdle(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) { o.Lane.IdleTimeout = 10 * time.Millisecond })
	w := f.watch(anyState)
	w.Await(1)
	time.Sleep(1200 * time.Millisecond) // a tick of the lanes' clock
	if f.up.Open(proxytest.WatchList) != 1 {
		t.Fatal("a lane with a client stopped")
	}
	w.Close()
	f.until("end of the upstream watch", func() bool { return f.up.Open(proxytest.WatchList) == 0 })
	f.watch(anyState).Await(1)
	if n := f.up.Count(proxytest.WatchList); n != 2 {
		t.Errorf("%d upstream watches in all, want 2", n)
	}
}

// A watch that has ended no longer keeps its lane, even if the client keeps its connection.
func TestLaneStopsWithConnectionsKept(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) { o.Lane.IdleTimeout = 10 * time.Millisecond })
	c := (&front{t: t, insecure: strings.TrimPrefix(f.insecure, "http://")}).dial()
	c.send("GET %s&timeoutSeconds=4 HTTP/1.1\nHost: localhost\n\n", anyState)
	if _, body := c.response(); !strings.Contains(body, "initial-events-end") {
		t.Fatalf("got %q", body)
	}
	f.until("end of the upstream watch", func() bool { return f.up.Open(proxytest.WatchList) == 0 })
	c.send("GET /version HTTP/1.1\nHost: localhost\nUser-Agent: " + proxytest.ClientAgent + "\n\n")
	c.response()
	f.passed(1)
}

// If watchfan may not list a resource, requests for it pass through with the client's rights. They
// do not wait for the lane that fails.
func TestLaneUpstreamRefuses(t *testing.T) {
	for name, refuse := range map[string]func(*proxytest.Call){
		"403":   func(c *proxytest.Call) { c.Fail(403, "Forbidden", "no", 0) },
		"404":   func(c *proxytest.Call) { c.Fail(404, "NotFound", "no", 0) },
		"500":   func(c *proxytest.Call) { c.Fail(500, "InternalError", "no", 0) },
		"break": (*proxytest.Call).Abort,
		"empty": func(c *proxytest.Call) { c.Write("") },
	} {
		for _, kind := range []proxytest.Kind{proxytest.Form, proxytest.WatchList} {
			t.Run(name+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				f := startFan(t, proxytest.NewServer(t))
				f.cms.Put("ns", "a", "1")
				f.up.On(kind, 1000, refuse)
				started := time.Now()
				for range 5 {
					w := f.watch(anyState)
					wantStrings(t, "watch", proxytest.Strings(w.Await(2)), "ADDED ns/a 101", "END 101")
				}
				took := time.Since(started)
				if took >= 4*proxy.LaneWait {
					t.Errorf("five watches took %s, as if all but the first had waited", took)
				}
				f.passed(5)
				// By the third second the pauses are longer than one second.
				if n, most := f.up.Count(kind), 15+int(took/time.Second); n > most {
					t.Errorf("%d attempts in %s, want at most %d", n, took, most)
				}
			})
		}
	}
}

// A lane whose first lists fail is filled by a later one. Until then requests pass through.
func TestLaneRecovers(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	f.up.On(proxytest.WatchList, 2, func(c *proxytest.Call) { c.Fail(500, "InternalError", "no", 0) })
	f.watch(anyState).Await(1)
	f.awaitLog("msg=Listed")
	f.watch(anyState).Await(1)
	f.passed(1)
}

// When the resource no longer exists upstream, the lane stops and its watches end properly.
func TestLaneResourceGone(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	w := f.watch(anyState)
	w.Await(1)
	f.up.On(proxytest.Watch, 1, func(c *proxytest.Call) { c.Fail(404, "NotFound", "no", 0) })
	f.up.Reflector().End()
	if err := w.Ended(); err != nil {
		t.Errorf("stream ended with %v", err)
	}
	f.awaitLog("upstream does not serve the resource")
	f.watch(anyState).Await(1) // a new lane
	f.passed(0)
}

// Shutdown ends watches properly, on both ports and over HTTP/2, and leaves nothing behind (see
// TestMain).
func TestLaneShutdown(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t), both, func(o *proxy.Options) {
		o.ShutdownTimeout = time.Hour // the shutdown does not take that long
	})
	var watchers []*proxytest.Watcher
	for i := range 20 {
		switch i % 3 {
		case 0:
			watchers = append(watchers, proxytest.Open(t, f.insecure+anyState))
		case 1:
			watchers = append(watchers, proxytest.Open(t, f.secure+anyState, "Authorization", "Bearer "+clientToken))
		case 2:
			watchers = append(watchers, proxytest.OpenHTTP2(t, f.secure+anyState, "Authorization", "Bearer "+clientToken))
		}
	}
	for _, w := range watchers {
		w.Await(1)
	}
	f.passed(0)
	f.stop()
	for _, w := range watchers {
		if err := w.Ended(); err != nil {
			t.Errorf("stream ended with %v", err)
		}
	}
	f.until("end of the upstream watch", func() bool { return f.up.Open(proxytest.WatchList) == 0 })
	awaitGoroutines(t)
}

// both opens the secure port too.
func both(o *proxy.Options) { o.SecurePort, o.BindAddress = proxy.AnyPort, "127.0.0.1" }
