package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// slowly has the collection's lists, or initial events, come one object at a time, each when tick
// says so.
func slowly(f *fan, kind proxytest.Kind, tick <-chan time.Time) {
	f.up.SetDelay(func(k proxytest.Kind) time.Duration {
		if k == kind {
			<-tick
		}
		return 0
	})
}

// A resource that takes long to list is listed by the proxy and by a handful of clients, however
// many want it: the others wait for the proxy's list.
func TestColdLaneManyClients(t *testing.T) {
	t.Parallel()
	const clients = 300
	f := startFan(t, proxytest.NewServer(t))
	for i := range 100 {
		f.cms.Put("ns", fmt.Sprintf("o%03d", i), "1")
	}
	ticks := make(chan time.Time)
	slowly(f, proxytest.WatchList, ticks)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case ticks <- time.Now():
				time.Sleep(500 * time.Millisecond)
			case <-stop:
				close(ticks) // the rest comes at once
				return
			}
		}
	}()
	var all sync.WaitGroup
	var answered, refused atomic.Int32
	for i := range clients {
		path := cmsPath + []string{"?resourceVersion=0", "", "?limit=500", "?watch=1&resourceVersion=0&timeoutSeconds=15", "?watch=1&timeoutSeconds=16"}[i%5]
		all.Go(func() {
			resp, body := f.get(path)
			switch {
			case resp.StatusCode == http.StatusOK && strings.Count(body, `"o0`) == 100:
				answered.Add(1)
			case resp.StatusCode == http.StatusTooManyRequests:
				refused.Add(1)
			default:
				t.Errorf("%s: %s, %d bytes", path, resp.Status, len(body))
			}
		})
	}
	f.up.AwaitCount(proxytest.Client, proxy.MostThrough)
	time.Sleep(3 * time.Second) // in which all others would have come, too
	close(stop)
	all.Wait()
	f.passed(proxy.MostThrough)
	if f.up.Count(proxytest.WatchList) != 1 || answered.Load()+refused.Load() != clients || answered.Load() < clients/2 {
		t.Errorf("%d were answered, %d refused, of %d; %d lists", answered.Load(), refused.Load(), clients, f.up.Count(proxytest.WatchList))
	}
}

// While an upstream that does not answer is asked for a resource, a handful of clients ask it, too.
// The others are told to come again, each at another time.
func TestColdLaneSilentUpstream(t *testing.T) {
	t.Parallel()
	const clients = 200
	f := startFan(t, proxytest.NewServer(t))
	for _, kind := range []proxytest.Kind{proxytest.Form, proxytest.Client} {
		f.up.On(kind, 1<<20, (*proxytest.Call).Hang)
	}
	var mu sync.Mutex
	after, refused := make(map[string]int), 0
	for range clients {
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, f.insecure+cmsPath, nil)
			req.Header.Set("User-Agent", proxytest.ClientAgent)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return // one of those that ask upstream
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("got %s", resp.Status)
			}
			mu.Lock()
			defer mu.Unlock()
			after[resp.Header.Get("Retry-After")]++
			refused++
		}()
	}
	f.until("refusal of all but a handful", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return refused == clients-proxy.MostThrough
	})
	f.passed(proxy.MostThrough)
	if len(after) < 3 || after[""] > 0 {
		t.Errorf("clients are to come again after %v", after)
	}
}

// Clients of a lane whose upstream breaks off each list are passed through a handful at a time.
func TestColdLaneBrokenUpstream(t *testing.T) {
	t.Parallel()
	const clients = 100
	f := startFan(t, proxytest.NewServer(t))
	f.up.On(proxytest.WatchList, 1<<20, (*proxytest.Call).Abort)
	var now, most atomic.Int32
	f.up.On(proxytest.Client, 1<<20, func(c *proxytest.Call) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(20 * time.Millisecond)
		c.Serve()
		now.Add(-1)
	})
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			if resp, _ := f.get(cmsPath); resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("got %s", resp.Status)
			}
		})
	}
	all.Wait()
	if m := most.Load(); m > proxy.MostThrough {
		t.Errorf("%d requests were passed through at a time, want at most %d", m, proxy.MostThrough)
	}
}
