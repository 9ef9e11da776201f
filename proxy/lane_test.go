package proxy_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

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
