package proxy_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// An upstream watch that hangs on a live connection is broken and resumed. Clients' streams stay
// open.
func TestGuardBreaksSilentWatch(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(testing.TB) *proxytest.Server{"http1": proxytest.NewServer,
		"http2": proxytest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFan(t, server(t), proxy.HangTimeout(300*time.Millisecond))
			f.cms.Put("ns", "a", "1")
			w := f.watch(anyState)
			w.Await(2)
			f.up.Bump(5)
			f.cms.SendBookmark(proxytest.WatchList)
			f.up.AwaitCount(proxytest.Watch, 1)
			if rv := f.up.Requests(proxytest.Watch)[0].Query.Get("resourceVersion"); rv != "106" {
				t.Errorf("resumed from %s, want 106", rv)
			}
			f.awaitLog("upstream has gone silent", "relist=false")
			f.cms.Put("ns", "b", "1")
			wantStrings(t, "watch", proxytest.Strings(w.Await(3)), "ADDED ns/a 101", "END 101", "ADDED ns/b 107")
			// The second watch has had no bookmark, so its silence proves nothing.
			time.Sleep(time.Second)
			if n := f.up.Count(proxytest.Watch); n != 1 {
				t.Errorf("%d watches, although upstream may send no bookmarks any more", n)
			}
			if !w.Open() {
				t.Error("the client's stream ended")
			}
			f.passed(0)
		})
	}
}

// Initial events may take longer than a watch may be silent. The time of silence begins after them.
func TestGuardWaitsForInitialEvents(t *testing.T) {
	t.Parallel()
	const hang, slow = 400 * time.Millisecond, 600 * time.Millisecond
	f := startFan(t, proxytest.NewServer(t), proxy.HangTimeout(hang))
	w := f.watch(anyState)
	w.Await(1)
	f.up.On(proxytest.WatchList, 1, func(c *proxytest.Call) {
		time.Sleep(slow)
		c.Serve()
	})
	f.up.Bump(5)
	f.cms.SendBookmark(proxytest.WatchList)
	f.up.Reflector().Send("garbage\n")
	f.up.AwaitCount(proxytest.Watch, 1)
	listed, resumed := f.up.Requests(proxytest.WatchList)[1], f.up.Requests(proxytest.Watch)[0]
	if after := resumed.At.Sub(listed.At); after < slow+hang {
		t.Errorf("the second watch was given up %s after it had been asked for, and its initial events took %s",
			after, slow)
	}
	if !w.Open() {
		t.Error("the client's stream ended")
	}
}

// There may be several kube-apiservers behind one address, and only one of them hangs. So the next
// attempt uses another connection.
func TestHungUpstreamIsLeft(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewTLSServer(t))
	w := f.watch(anyState)
	w.Await(1)
	var first, again atomic.Pointer[string]
	note := func(to *atomic.Pointer[string], then func(*proxytest.Call)) func(*proxytest.Call) {
		return func(c *proxytest.Call) {
			to.Store(&c.R.RemoteAddr)
			then(c)
		}
	}
	f.up.On(proxytest.Watch, 1,
		note(&first, func(c *proxytest.Call) {
			c.Fail(http.StatusGatewayTimeout, "Timeout", "Too large resource version", 1)
		}))
	f.up.On(proxytest.Watch, 1, note(&again, (*proxytest.Call).Serve))
	f.up.Reflector().End()
	f.up.AwaitCount(proxytest.Watch, 2)
	rv := f.cms.Put("ns", "a", "1")
	w.AwaitVersion(rv)
	if a, b := *first.Load(), *again.Load(); a == b {
		t.Errorf("tried again over the same connection, %s", a)
	}
	if n := f.up.Count(proxytest.WatchList); n != 1 {
		t.Errorf("listed %d times", n)
	}
}

// A list from a kube-apiserver that is behind does not mean that etcd was restored. The reflector
// lists again, from another one.
func TestReflectorListBehind(t *testing.T) {
	t.Parallel()
	cms := proxytest.ConfigMaps
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "1")
	w := f.watch(anyState)
	w.Await(2)
	f.cms.Put("ns", "a", "2")
	w.Await(3)
	f.up.On(proxytest.WatchList, 2, func(c *proxytest.Call) {
		c.Write(cms.Event("ADDED", "ns", "a", 101), cms.Bookmark(101, true))
	})
	f.up.On(proxytest.Watch, 1, func(c *proxytest.Call) { c.Fail(http.StatusGone, "Expired", "too old", 0) })
	f.up.Reflector().Abort()
	f.awaitLog("as of 101, at 102 after 102", "relist=true")
	f.awaitLog("msg=Listed", "relisted=true")
	rv := f.cms.Put("ns", "b", "1")
	w.AwaitVersion(rv)
	wantStrings(t, "watch", w.Strings(), "ADDED ns/a 101", "END 101", "MODIFIED ns/a 102",
		fmt.Sprintf("ADDED ns/b %d", rv))
	if !w.Open() || len(f.log.with("went back in time")) != 0 {
		t.Error("taken for a restored etcd")
	}
	f.passed(0)
}

// If many lanes must be listed again, only a few are listed at a time. Lists that hang do not stop
// the others.
func TestListsTakeTurns(t *testing.T) {
	t.Parallel()
	const lanes = 40
	up := proxytest.NewServer(t)
	var all []*proxytest.Collection
	for i := range lanes {
		all = append(all, up.Add(proxytest.Resource{Version: "v1", Name: fmt.Sprintf("things%02d", i), Kind: "Thing"}))
	}
	f := startFan(t, up)
	var watchers []*proxytest.Watcher
	for _, c := range all {
		w := f.watch("%s?watch=1&allowWatchBookmarks=true&resourceVersion=0", c.Path())
		w.Await(1)
		watchers = append(watchers, w)
	}
	var now, most atomic.Int32
	f.up.On(proxytest.WatchList, 1000, func(c *proxytest.Call) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(20 * time.Millisecond)
		now.Add(-1)
		c.Serve()
	})
	f.up.On(proxytest.Watch, lanes, func(c *proxytest.Call) { c.Fail(http.StatusGone, "Expired", "too old", 0) })
	began := time.Now()
	for _, c := range all {
		c.Reflector().Abort()
	}
	f.up.AwaitCount(proxytest.WatchList, 2*lanes)
	t.Logf("%d lanes were listed anew in %s, at most %d at a time", lanes, time.Since(began).Round(time.Millisecond),
		most.Load())
	if n := most.Load(); n > proxy.ListsAtOnce {
		t.Errorf("%d lists at a time, want at most %d", n, proxy.ListsAtOnce)
	}
	for i, c := range all {
		rv := c.Put("ns", "a", "1")
		watchers[i].AwaitVersion(rv)
	}

	f.up.Forget()
	f.up.On(proxytest.WatchList, proxy.ListsAtOnce, (*proxytest.Call).Hang)
	f.up.On(proxytest.Watch, lanes, func(c *proxytest.Call) { c.Fail(http.StatusGone, "Expired", "too old", 0) })
	for _, c := range all {
		c.Reflector().Abort()
	}
	f.up.AwaitCount(proxytest.WatchList, 3*lanes)
	f.passed(0)
}
