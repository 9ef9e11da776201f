package reflector_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// A list from a kube-apiserver that is behind does not mean that etcd was restored. The reflector
// lists again, from another one.
func TestListBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cms := proxytest.ConfigMaps
		p := bubble.Start(t, proxytest.NewBubbleServer(t))
		p.CMs.Put("ns", "a", "1")
		w := p.Watch(bubble.AnyState)
		w.Await(2)
		p.CMs.Put("ns", "a", "2")
		w.Await(3)
		p.Up.On(proxytest.WatchList, 2, func(c *proxytest.Call) {
			c.Write(cms.Event("ADDED", "ns", "a", 101), cms.Bookmark(101, true))
		})
		p.Up.On(proxytest.Watch, 1, func(c *proxytest.Call) { c.Fail(http.StatusGone, "Expired", "too old", 0) })
		p.Up.Reflector().Abort()
		p.AwaitLog("as of 101, at 102 after 102", "relist=true")
		p.AwaitLog("msg=Listed", "relisted=true")
		w.AwaitVersion(p.CMs.Put("ns", "b", "1"))
		proxytest.WantStrings(t, "watch", w.Strings(), "ADDED ns/a 101", "END 101", "MODIFIED ns/a 102", "ADDED ns/b 103")
		if !w.Open() || len(p.Log.With("went back in time")) != 0 {
			t.Error("taken for a restored etcd")
		}
		p.Passed(0)
	})
}

// An aggregated API server that never ends initial events is listed.
func TestEndlessInitialEvents(t *testing.T) {
	foos := proxytest.Foos
	for name, events := range map[string][]string{
		"silent":   {foos.Event("ADDED", "ns", "a", 101)},
		"bookmark": {foos.Event("ADDED", "ns", "a", 101), foos.Bookmark(101, false)},
	} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			p.Up.Collection(foos).Put("ns", "a", "1")
			p.Up.On(proxytest.WatchList, 1000, func(c *proxytest.Call) {
				if c.R.URL.Path != foos.Path() {
					c.Serve()
					return
				}
				c.Write(events...)
				c.Hang()
			})
			p.Watch("%s?watch=1&resourceVersion=0", foos.Path()).Await(1)
			p.AwaitLog("msg=Listed", "resource=ex.io/v1/foos")
			p.Passed(1)
			w := p.Watch("%s?watch=1&resourceVersion=0", foos.Path())
			w.AwaitVersion(p.Up.Collection(foos).Put("ns", "b", "1"))
			p.Passed(1)
		}, func(o *proxy.Options) { o.Lane.CacheAggregatedGroups = []string{foos.Group} })
	}
}

// If a relist has the same objects in other bytes, the cache takes the new bytes. Lists have the
// new bytes then, and all open watches end with 410, even those whose selector selects nothing. A
// list with the same bytes ends nothing.
func TestReencoded(t *testing.T) {
	for name, data := range map[string]string{"other bytes": "new", "same bytes": "old"} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			p.CMs.Put("ns", "a", "old")
			p.CMs.Put("ns", "b", "same")
			watchers := []*proxytest.Watcher{p.Watch(bubble.AnyState), p.Watch(bubble.AnyState + "&labelSelector=none")}
			watchers[0].Await(3)
			p.CMs.Reform("ns", "a", data)
			p.CMs.Reflector().Abort()
			p.AwaitLog("relisted=true")
			synctest.Wait()
			for _, w := range watchers {
				events := w.Strings()
				if ended := events[len(events)-1] == "ERROR 410"; ended != (data == "new") || ended == w.Open() {
					t.Errorf("open: %t, got %s", w.Open(), events)
				}
			}
			if warned := len(p.Log.With("level=WARN", "writes objects differently")) == 1; warned != (data == "new") {
				t.Errorf("a warning: %t", warned)
			}
			_, body := p.Get(bubble.CMs + "?resourceVersion=0")
			if !strings.Contains(body, fmt.Sprintf("%q", data)) {
				t.Errorf("list: %s", body)
			}
			w := p.Watch(bubble.AnyState)
			if events := w.Await(3); !strings.Contains(events[0].Raw, data) {
				t.Errorf("the next watch begins with %s", events[0].Raw)
			}
			w.AwaitVersion(p.CMs.Put("ns", "n", "1"))
			p.Passed(0)
		})
	}
}

// If many lanes must be listed again, only a few are listed at a time. Lists that hang do not stop
// the others.
func TestListsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes, takes = 40, 20 * time.Millisecond
		up := proxytest.NewBubbleServer(t)
		var all []*proxytest.Collection
		for i := range lanes {
			all = append(all, up.Add(proxytest.Resource{Version: "v1", Name: fmt.Sprintf("things%02d", i), Kind: "Thing"}))
		}
		p := bubble.Start(t, up)
		var watchers []*proxytest.Watcher
		for _, c := range all {
			w := p.Watch("%s?watch=1&allowWatchBookmarks=true&resourceVersion=0", c.Path())
			w.Await(1)
			watchers = append(watchers, w)
		}
		relist := func() {
			p.Up.On(proxytest.Watch, lanes, func(c *proxytest.Call) { c.Fail(http.StatusGone, "Expired", "too old", 0) })
			for _, c := range all {
				c.Reflector().Abort()
			}
		}
		turns := make(chan struct{}, reflector.ListsAtOnce)
		p.Up.On(proxytest.WatchList, lanes, func(c *proxytest.Call) {
			select {
			case turns <- struct{}{}:
			default:
				t.Errorf("more than %d lists at a time", reflector.ListsAtOnce)
			}
			time.Sleep(takes)
			<-turns
			c.Serve()
		})
		relist()
		p.Up.AwaitCount(proxytest.WatchList, 2*lanes)
		for i, c := range all {
			watchers[i].AwaitVersion(c.Put("ns", "a", "1"))
		}
		p.Up.On(proxytest.WatchList, reflector.ListsAtOnce, (*proxytest.Call).Hang)
		relist()
		time.Sleep(10 * time.Second)
		p.Up.WantCount(proxytest.WatchList, 3*lanes)
		p.Passed(0)
	})
}

// Clients get the Warnings of the kube-apiserver that answers now.
func TestWarningsAfterUpgrade(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		version := "v1.36.0"
		p.Up.On(proxytest.Other, 1<<20, func(c *proxytest.Call) {
			if c.R.URL.Path == "/version" {
				c.Write(fmt.Sprintf(`{"gitVersion":%q}`, version))
				return
			}
			c.Serve()
		})
		p.Up.On(proxytest.Form, 1<<20, func(c *proxytest.Call) {
			c.W.Header().Add("Warning", fmt.Sprintf("299 - %q", "deprecated in "+version))
			c.Serve()
		})
		w := p.Watch(bubble.AnyState)
		w.Await(1)
		time.Sleep(time.Minute)
		version = "v1.37.0"
		p.CMs.Reflector().End()
		p.AwaitLog("relisted=true")
		resp, _ := p.Get(bubble.CMs + "?resourceVersion=0")
		if got, want := resp.Header["Warning"], []string{`299 - "deprecated in v1.37.0"`}; !slices.Equal(got, want) {
			t.Errorf("Warning %q, want %q", got, want)
		}
		p.Passed(0)
	})
}
