package lane_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// A resource is watched once for any number of clients. Its lane starts with the first of them. When
// the proxy stops, their watches end properly.
func TestOneUpstreamWatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		time.Sleep(time.Minute)
		if n := p.Up.Count(proxytest.WatchList) + p.Up.Count(proxytest.Form); n != 0 {
			t.Fatalf("%d requests before the first client", n)
		}
		want := [][]string{{"ADDED ns/a 101", "END 101", "ADDED ns/b 102"}, {"END 101", "ADDED ns/b 102"}}
		var clients []*bubble.Client
		for i := range 20 {
			clients = append(clients, p.Begin(bubble.Request{Target: bubble.AnyState + []string{"", "&labelSelector=app"}[i%2]}))
		}
		var watchers []*proxytest.Watcher
		for _, c := range clients {
			watchers = append(watchers, c.Watch())
		}
		synctest.Wait()
		p.CMs.Put("ns", "b", "1", "app", "x")
		synctest.Wait()
		for i, w := range watchers {
			proxytest.WantStrings(t, "watch", w.Strings(), want[i%2]...)
		}
		forms, lists, open := p.Up.Count(proxytest.Form), p.Up.Count(proxytest.WatchList), p.Up.Open(proxytest.WatchList)
		if forms != 1 || lists != 1 || open != 1 {
			t.Errorf("%d empty lists, %d WatchLists, %d of them open; want 1 each", forms, lists, open)
		}
		p.Passed(0)
		p.Stop()
		for _, w := range watchers {
			w.WantEnd()
		}
		synctest.Wait()
		if p.Up.Open(proxytest.WatchList) != 0 {
			t.Error("the upstream watch goes on")
		}
	})
}

// A lane without clients stops; the next client starts it again. A watch that has ended no longer
// keeps its lane, even if the client keeps its connection.
func TestStopsWhenIdle(t *testing.T) {
	for name, timeout := range map[string]int{"client leaves": 3600, "watch ends": 200} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			w := p.Watch(bubble.AnyState+"&timeoutSeconds=%d", timeout)
			time.Sleep(200 * time.Second) // an upstream watch may end, and begin again, after five minutes
			if timeout == 3600 {
				w.Close()
			}
			time.Sleep(50 * time.Second)
			follows := func() int { return p.Up.Open(proxytest.WatchList) + p.Up.Open(proxytest.Watch) }
			if follows() != 1 {
				t.Error("the lane stopped early")
			}
			time.Sleep(17 * time.Second) // the lanes' clock ticks ten times within the timeout
			if follows() != 0 {
				t.Error("an idle lane goes on")
			}
			p.Watch(bubble.AnyState).Await(1)
			p.Up.WantCount(proxytest.WatchList, 2)
			p.Passed(0)
		}, func(o *proxy.Options) { o.Lane.IdleTimeout = time.Minute })
	}
}

// A lane that stops while kube-apiserver is away takes no other resource of its API version away.
func TestStopsInOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		w := p.Watch(bubble.AnyState)
		w.Want("ADDED ns/a 101", "END 101")
		p.Get("/api/v1/events?resourceVersion=0")
		for _, kind := range []proxytest.Kind{proxytest.Form, proxytest.WatchList, proxytest.Watch, proxytest.Probe, proxytest.Other} {
			p.Up.On(kind, 1000, (*proxytest.Call).Abort)
		}
		p.CMs.Reflector().Abort()
		time.Sleep(2 * time.Minute)
		if n := len(p.Log.With("Stopped idle lane", "v1/events")); n != 1 {
			t.Fatalf("%d idle lanes have stopped, want 1", n)
		}
		began := time.Now()
		if resp, body := p.Get(bubble.CMs + "?resourceVersion=0"); resp.StatusCode != 200 || time.Since(began) > 0 {
			t.Errorf("%s after %s: %s", resp.Status, time.Since(began), body)
		}
		p.Passed(0)
	}, func(o *proxy.Options) { o.Lane.IdleTimeout = time.Minute })
}

// If a resource cannot be listed, requests for it pass through with the client's rights. They do
// not wait for the lane that fails. If the next attempt may succeed, they pass through a few at a
// time. Attempts become rarer.
func TestUpstreamRefuses(t *testing.T) {
	const turn = 2 * time.Second // of a watch
	both := []proxytest.Kind{proxytest.Form, proxytest.WatchList}
	for name, c := range map[string]struct {
		refuse func(*proxytest.Call)
		waits  time.Duration // the watch behind the first few
		kinds  []proxytest.Kind
	}{
		"403":     {func(c *proxytest.Call) { c.Fail(403, "Forbidden", "no", 0) }, 0, both},
		"404":     {func(c *proxytest.Call) { c.Fail(404, "NotFound", "no", 0) }, 0, both},
		"500":     {func(c *proxytest.Call) { c.Fail(500, "InternalError", "no", 0) }, turn, both},
		"break":   {(*proxytest.Call).Abort, turn, both},
		"empty":   {func(c *proxytest.Call) { c.Write("") }, turn, []proxytest.Kind{proxytest.WatchList}},
		"no form": {func(c *proxytest.Call) { c.Write("") }, 0, []proxytest.Kind{proxytest.Form}},
	} {
		for _, kind := range c.kinds {
			bubble.Row(t, name+"/"+string(kind), func(t *testing.T, p *bubble.Proxy) {
				p.CMs.Put("ns", "a", "1")
				p.Up.On(kind, 1000, c.refuse)
				began := time.Now()
				for range lane.MostThrough + 1 {
					p.Watch(bubble.AnyState).Want("ADDED ns/a 101", "END 101")
				}
				if took := time.Since(began); took != c.waits {
					t.Errorf("the watches took %s, want %s", took, c.waits)
				}
				p.Passed(lane.MostThrough + 1)
				time.Sleep(time.Minute)
				if n := p.Up.Count(kind); n > 30 {
					t.Errorf("%d attempts in a minute, want at most 30", n)
				}
			})
		}
	}
}

// A filled lane whose resource watchfan may not watch any more stops after a while: it would never be current again,
// and its clients may read. So does one while kube-apiserver does not accept watchfan's credential. No other resource
// suffers, also if it is resident. A right that is missing for a moment, as while kube-apiserver starts, stops nothing.
func TestRightGone(t *testing.T) {
	for code, reason := range map[int]string{401: "Unauthorized", 403: "Forbidden"} {
		bubble.Row(t, reason, func(t *testing.T, p *bubble.Proxy) {
			synctest.Wait() // the resident lane is filled
			p.CMs.Put("ns", "a", "1")
			synctest.Wait()
			w := p.Watch(bubble.AnyState)
			w.Want("ADDED ns/a 101", "END 101")
			gone := func(c *proxytest.Call) {
				if c.R.Header.Get("Authorization") == "Bearer "+bubble.OwnToken && c.R.URL.Path == bubble.CMs {
					c.Fail(code, reason, "no", 0)
				} else {
					c.Serve()
				}
			}
			for _, kind := range []proxytest.Kind{proxytest.Form, proxytest.WatchList, proxytest.Watch, proxytest.Probe} {
				p.Up.On(kind, 1<<20, gone)
			}
			p.CMs.Reflector().Abort()
			time.Sleep(time.Minute)
			if n := len(p.Log.With("Stopped lane")); n != 0 {
				t.Error("it stopped at once")
			}
			time.Sleep(15 * time.Minute)
			w.WantEnd()
			q := p.Send(bubble.Request{Target: fmt.Sprintf(bubble.Since, 101), Token: bubble.ClientToken}).Watch()
			p.CMs.Put("ns", "b", "1")
			q.Want("ADDED ns/b 102")
			if resp, body := p.Admin("/readyz"); resp.StatusCode != http.StatusOK {
				t.Errorf("the others are taken away too: %s", body)
			}
		}, func(o *proxy.Options) { o.Cached.ResidentResources = []string{"configmaps"} })
	}
}

// When the resource no longer exists upstream, or not in the lane's encoding, as after a downgrade, the
// lane stops and its watches end properly. The next client starts a new lane.
func TestResourceGone(t *testing.T) {
	for code, reason := range map[int]string{404: "NotFound", 406: "NotAcceptable"} {
		bubble.Row(t, reason, func(t *testing.T, p *bubble.Proxy) {
			w := p.Watch(bubble.AnyState)
			w.Await(1)
			p.Up.On(proxytest.Watch, 1000, func(c *proxytest.Call) { c.Fail(code, reason, "no", 0) })
			p.Up.Reflector().End()
			w.WantEnd()
			p.AwaitLog("upstream does not serve the resource")
			p.Up.Forget()
			p.Watch(bubble.AnyState).Await(1)
			p.Passed(0)
		})
	}
}
