package lane_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// uncachable write a ConfigMap that can't be cached.
var uncachable = map[string]func(c *proxytest.Collection) uint64{
	"too large": func(c *proxytest.Collection) uint64 { return c.Put("ns", "big", strings.Repeat("x", 17<<20)) },
	"too deep": func(c *proxytest.Collection) uint64 {
		return c.PutMembers("big", 1, `"x":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000))
	},
	"name that JSON cannot express": func(c *proxytest.Collection) uint64 { return c.Put("ns", "big\ufffd", "1") },
}

// A resource with an object that cannot be cached passes through, without a list each time. The
// proxy is ready nevertheless, and other resources are not affected. Once the object is gone, the
// resource is cached again.
func TestUncachable(t *testing.T) {
	for name, put := range uncachable {
		for _, watchList := range []bool{true, false} {
			bubble.Run(t, fmt.Sprintf("%s, watchList %t", name, watchList), func(t *testing.T) {
				up := proxytest.NewBubbleServer(t)
				up.SetWatchList(watchList)
				p := bubble.Start(t, up, func(o *proxy.Options) { o.Cached.ResidentResources = []string{"v1/configmaps"} })
				lists := map[bool]proxytest.Kind{true: proxytest.WatchList, false: proxytest.List}[watchList]
				ready := func() {
					t.Helper()
					synctest.Wait() // for the check of upstream
					if resp, body := p.Admin("/readyz"); resp.StatusCode != http.StatusOK {
						t.Errorf("not ready: %s", body)
					}
				}
				other := p.Watch("%s", proxytest.Foos.Path()+"?watch=1&resourceVersion=0")
				p.CMs.Put("ns", "a", "1")
				clients := []*proxytest.Watcher{p.Watch(bubble.AnyState), p.Watch(bubble.CMs + "?watch=1&resourceVersion=101")}
				clients[0].Await(1)
				ready()
				before := up.Count(lists)

				// The object arrives on an open watch. The lane lists, finds the object again, and
				// stops.
				put(p.CMs)
				for _, w := range clients {
					w.WantEnd()
					if got := w.Strings(); len(got) > 2 {
						t.Errorf("a client got %s", got)
					}
				}
				p.AwaitLog("level=ERROR", "Stopped lane", "passed through", "resource=v1/configmaps")
				passed := up.Count(proxytest.Client)
				for range 3 {
					p.Watch(bubble.AnyState).Close()
				}
				p.Passed(passed + 3)
				ready()
				up.WantCount(lists, before+1)
				if got := p.Log.With("Stopped lane"); len(got) != 1 || len(got[0]) > 1000 {
					t.Errorf("logged %d lines, the first is %.1000s", len(got), got)
				}
				up.Collection(proxytest.Foos).Put("", "foo", "1")
				other.Await(1)
				if !other.Open() {
					t.Error("another resource's stream has ended")
				}

				for _, key := range [][2]string{{"ns", "big"}, {"", "big"}, {"ns", "big\ufffd"}} {
					p.CMs.Delete(key[0], key[1])
				}
				time.Sleep(10 * time.Minute)
				p.Watch(bubble.AnyState).Await(1)
				p.Passed(passed + 3)
			})
		}
	}
}
