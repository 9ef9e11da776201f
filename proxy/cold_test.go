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

// slowly sends the collection's lists, or its initial events, one object at a time. Each object
// waits for a tick.
func slowly(f *fan, kind proxytest.Kind, tick <-chan time.Time) {
	f.up.SetDelay(func(k proxytest.Kind) time.Duration {
		if k == kind {
			<-tick
		}
		return 0
	})
}

// coldFan is a proxy that knows which resources exist and has not listed ConfigMaps yet.
func coldFan(t *testing.T) *fan {
	f := startFan(t, proxytest.NewServer(t))
	f.until("discovery", func() bool {
		before := f.up.Count(proxytest.Client)
		f.get(proxytest.Events.Path() + "?resourceVersion=0")
		return f.up.Count(proxytest.Client) == before
	})
	return f
}

// While the proxy lists a large resource, only a few clients' requests for it pass through. The
// others wait for the proxy's list.
func TestColdLaneManyClients(t *testing.T) {
	t.Parallel()
	const clients = 300
	f := coldFan(t)
	before := f.up.Count(proxytest.Client)
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
		path := cmsPath +
			[]string{"?resourceVersion=0", "", "?limit=500", "?watch=1&resourceVersion=0&timeoutSeconds=15",
				"?watch=1&timeoutSeconds=16"}[i%5]
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
	f.up.AwaitCount(proxytest.Client, before+proxy.MostThrough)
	time.Sleep(3 * time.Second) // all other requests would have passed through by then
	close(stop)
	all.Wait()
	f.passed(before + proxy.MostThrough)
	t.Logf("%d were answered, %d refused", answered.Load(), refused.Load())
	if answered.Load() < proxy.MostThrough {
		t.Error("nobody was answered from the lane, or by kube-apiserver")
	}
}

// While an upstream that does not answer is asked for a resource, a few clients' requests pass
// through. The others get 429, with different Retry-After headers.
func TestColdLaneSilentUpstream(t *testing.T) {
	t.Parallel()
	const clients = 200
	f := coldFan(t)
	before := f.up.Count(proxytest.Client)
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
				return // one of those that pass through
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
	f.passed(before + proxy.MostThrough)
	if len(after) < 3 || after[""] > 0 {
		t.Errorf("clients are to come again after %v", after)
	}
}

// If upstream breaks off each list of a lane, its clients pass through a few at a time.
func TestColdLaneBrokenUpstream(t *testing.T) {
	t.Parallel()
	const clients = 100
	f := coldFan(t)
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
			f.get(cmsPath)
		})
	}
	all.Wait()
	if m := most.Load(); m > proxy.MostThrough {
		t.Errorf("%d requests were passed through at a time, want at most %d", m, proxy.MostThrough)
	}
}

// A client that loses its right while it waits for a lane is not served from the lane.
func TestColdLaneRevoked(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), both, func(o *proxy.Options) {
		o.Auth.AuthorizationWebhookCacheAuthorizedTTL = 0
	})
	f.cms.Put("ns", "a", "1")
	ticks := make(chan time.Time)
	slowly(f, proxytest.WatchList, ticks)
	code := make(chan int, 1)
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, f.secure+cmsPath+"?resourceVersion=0", nil)
		req.Header.Set("User-Agent", proxytest.ClientAgent)
		req.Header.Set("Authorization", "Bearer "+clientToken)
		resp, err := stranger{}.client(t).Do(req)
		if err != nil {
			t.Error(err)
			close(code)
			return
		}
		resp.Body.Close()
		code <- resp.StatusCode
	}()
	f.up.AwaitCount(proxytest.WatchList, 1)
	f.up.SetAllow(func(string, string) bool { return false })
	f.up.On(proxytest.Client, 1, func(c *proxytest.Call) { c.Fail(http.StatusForbidden, "Forbidden", "no", 0) })
	time.Sleep(1500 * time.Millisecond)
	close(ticks)
	if got := <-code; got != http.StatusForbidden {
		t.Errorf("got %d", got)
	}
}

// A watch that passes through because its lane is not filled yet ends once the lane is, behind a
// bookmark, and its client resumes at the lane. A watch whose client may not resume goes on, and so
// does one that begins with the state.
func TestColdLaneRecalls(t *testing.T) {
	t.Parallel()
	f := coldFan(t)
	rv := f.cms.Put("ns", "a", "1")
	f.up.On(proxytest.WatchList, 1, (*proxytest.Call).Abort) // requests then pass through
	hold := make(chan struct{})
	f.up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { <-hold; c.Serve() })
	before := f.up.Count(proxytest.Client)
	resumed := f.watch(since, rv)
	stays := []*proxytest.Watcher{f.watch(cmsPath+"?watch=1&resourceVersion=%d", rv), f.watch(anyState)}
	f.passed(before + 3)
	rv = f.cms.Put("ns", "b", "1")
	wantStrings(t, "watch that passes through", proxytest.Strings(resumed.Await(1)), fmt.Sprintf("ADDED ns/b %d", rv))
	close(hold)
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- resumed.Ended() }()
	for err, over := error(nil), false; !over; {
		select {
		case err = <-ended:
			if over = true; err != nil {
				t.Errorf("the end of the watch that passed through: %v", err)
			}
		case <-time.After(200 * time.Millisecond):
			f.cms.Put("ns", "b", "2")
			f.cms.SendBookmark(proxytest.Client)
		}
	}
	last := resumed.Events()[len(resumed.Events())-1]
	if rv = last.RV; last.Type != "BOOKMARK" {
		t.Errorf("the last event is %s", last)
	}
	t.Logf("recalled after %s", time.Since(began).Round(time.Millisecond))
	again := f.watch(since, rv)
	rv = f.cms.Put("ns", "c", "1")
	events := proxytest.Strings(again.AwaitVersion(rv))
	wantStrings(t, "watch from the lane", events[len(events)-1:], fmt.Sprintf("ADDED ns/c %d", rv))
	time.Sleep(time.Until(began.Add(14 * time.Second))) // longer than any recalled watch goes on
	f.cms.SendBookmark(proxytest.Client)
	rv = f.cms.Put("ns", "d", "1")
	for _, w := range stays {
		w.AwaitVersion(rv)
	}
	f.passed(before + 3)
}
