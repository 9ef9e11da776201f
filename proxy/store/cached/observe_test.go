package cached_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// observeAll observes all clients.
func observeAll(o *proxy.Options) { o.Observe.Clients = observe.Rules{{Mode: observe.Observe}} }

// observed returns what the proxy has observed.
func observed(p *bubble.Proxy) (d diagnose.DebugObserved) {
	p.T.Helper()
	time.Sleep(5 * time.Second / 2) // observers look each second, and not at this instant
	p.AdminJSON(diagnose.ObservedPath, &d)
	return d
}

// What passes through is compared with a lane that nobody else uses: watches of any beginning, lists,
// pages and initial events. The client gets kube-apiserver's bytes.
func TestObserved(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.CMs.Put("other", "b", "1", "app", "x")
		begins, resumes := p.Watch(bubble.AnyState), p.Watch(bubble.Since, 100)
		within := p.Watch("/api/v1/namespaces/ns/configmaps?watch=1&allowWatchBookmarks=true")
		synctest.Wait()
		for range 3 {
			p.CMs.Put("ns", "a", "2")
			synctest.Wait()
		}
		p.CMs.Delete("ns", "a")
		begins.Await(7)
		resumes.Await(6)
		within.Await(6)
		for _, target := range []string{bubble.CMs, bubble.CMs + "?limit=1", bubble.CMs + "?resourceVersion=0",
			bubble.CMs + "?labelSelector=app%3Dx", "/api/v1/namespaces/ns/configmaps"} {
			if _, got := p.Get(target); got != p.Direct(target) {
				t.Errorf("%s: got %s", target, got)
			}
			synctest.Wait()
		}
		d := observed(p)
		if d.Watches != 3 || d.Lanes != 1 || len(d.Differences) > 0 || d.Lists != 7 || d.Events != 4*3 ||
			d.Skipped["before"] != 2 {
			t.Errorf("%+v", d)
		}
		var lanes diagnose.DebugState
		if p.AdminJSON("/debug/lanes?format=json", &lanes); len(lanes.Lanes) != 1 || lanes.Lanes[0].Clients != 0 {
			t.Errorf("%+v", lanes.Lanes)
		}
		p.Passed(3 + 5)
		const verdict = "no difference; kube-apiserver would have had 1 watch in place of 3"
		if _, text := p.Admin(diagnose.ObservedPath); !strings.Contains(text, verdict) {
			t.Errorf("%s", text)
		}
	}, observeAll)
}

// A lane that has missed a change answers a stale list. That is found, the page names the object, and the log
// does not. The resource is served from no cache then.
func TestObservedStale(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		w := p.Watch(bubble.Since, p.Up.RV())
		synctest.Wait()
		stream := p.CMs.Reflector()
		stream.Hold()
		missed := p.CMs.Put("ns", "secretive", "1")
		stream.Send(proxytest.ConfigMaps.Bookmark(missed, false))
		w.AwaitVersion(missed)
		synctest.Wait() // the watch passes through, and the lane has the bookmark
		p.Get(bubble.CMs)
		d := observed(p)
		found := make(map[observe.Kind]observe.Difference)
		for _, x := range d.Recent {
			found[x.Kind] = x
		}
		if x := found[observe.Stale]; len(found) != 1 || x.Key != "ns/secretive" || x.ResourceVersion != missed ||
			x.Verb != "list" {
			t.Errorf("%+v", d.Recent)
		}
		w.Close()
		var lanes diagnose.DebugState
		p.AdminJSON("/debug/lanes?format=json", &lanes)
		if len(lanes.Lanes) > 0 || len(lanes.Mistrusted) != 1 || lanes.Mistrusted[0].Resource != "v1/configmaps" {
			t.Errorf("%+v", lanes)
		}
		if len(p.Log.With("secretive")) > 0 || len(p.Log.With("reason=stale")) != 1 {
			t.Error("the log names the object, or not the difference")
		}
	}, observeAll)
}

// A read that its rule keeps from the caches passes through without any lane, and a denied one is not
// observed. Views are answered here all the same.
func TestRules(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.Get(bubble.CMs)
		p.Watch(bubble.AnyState).Await(2)
		p.Passed(2)
		p.Up.WantCount(proxytest.WatchList, 0)
		p.Up.OnClients(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
		p.Get(bubble.CMs, "User-Agent", proxytest.ClientAgent, "X-Test", "denied")
		if d := observed(p); !d.Since.IsZero() {
			t.Errorf("%+v", d)
		}
		if resp, _ := p.Get("/views/lean" + bubble.CMs); resp.StatusCode != http.StatusOK {
			t.Errorf("%s", resp.Status)
		}
		p.Up.AwaitCount(proxytest.WatchList, 1)
	}, func(o *proxy.Options) {
		o.Observe.Clients = observe.Rules{{Mode: observe.Off, UserAgents: []observe.UserAgent{proxytest.ClientAgent}}}
	})
}
