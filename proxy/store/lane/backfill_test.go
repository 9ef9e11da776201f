package lane_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// startLate runs a proxy whose lane begins at the end of a history, at resourceVersion 106.
func startLate(t *testing.T, change ...func(*proxy.Options)) *bubble.Proxy {
	p := bubble.Start(t, proxytest.NewBubbleServer(t), change...)
	p.CMs.Put("ns", "a", "1")             // 101
	p.CMs.Put("ns", "b", "1", "app", "x") // 102
	p.CMs.Put("ns", "a", "2", "app", "x") // 103
	p.CMs.Put("ns", "b", "2")             // 104
	p.CMs.Delete("ns", "b")               // 105
	p.CMs.Put("other", "c", "1")          // 106
	p.Watch(bubble.AnyState).Await(3)
	return p
}

// Clients that resume from before the lane share replays.
func TestBackfill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startLate(t)
		p.Up.SetBookmarkAfter(-1) // the history's end is known by an event behind it
		p.CMs.Put("ns", "z", "1")
		synctest.Wait()
		var watches []*bubble.Client
		for i := range 20 {
			watches = append(watches, p.Begin(bubble.Request{Target: fmt.Sprintf(bubble.Since, 101+i%3)}))
		}
		all := []string{"ADDED ns/b 102", "MODIFIED ns/a 103", "MODIFIED ns/b 104", "DELETED ns/b 105", "ADDED other/c 106",
			"ADDED ns/z 107"}
		for i, c := range watches {
			proxytest.WantStrings(t, fmt.Sprintf("watch from %d", 101+i%3), proxytest.Strings(c.Watch().AwaitVersion(107)), all[i%3:]...)
		}
		if n := p.Up.Count(proxytest.Short); n > 2 {
			t.Errorf("%d replays for 20 watches, want one, and one if the first began too late for some", n)
		}
		// A replay is also filtered by namespace and by name.
		p.Watch("/api/v1/namespaces/other/configmaps?watch=1&resourceVersion=101").Want("ADDED other/c 106")
		p.Watch(bubble.CMs+"?watch=1&resourceVersion=101&fieldSelector=metadata.name%%3Db").Want("ADDED ns/b 102", "MODIFIED ns/b 104", "DELETED ns/b 105")
		p.Passed(0)
	})
}

// A quiet collection's replay is complete at its bookmark.
func TestBackfillQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startLate(t)
		p.Up.Bump(1)
		p.Watch(bubble.Since, 104).Want("DELETED ns/b 105", "ADDED other/c 106")
		p.Passed(0)
	})
}

// A selector's events may depend on versions from before the replay. They are requested one by one,
// or, if they are a large part of the collection, with the whole collection.
func TestBackfillPrevious(t *testing.T) {
	for name, c := range map[string]struct{ objects, changed, byName, lists int }{
		"few":             {20, 16, 16, 0},
		"many of a few":   {100, 17, 0, 1},
		"many of a lot":   {17 * 64, 17, 17, 0},
		"a little more":   {17*64 - 1, 17, 0, 1},
		"all that change": {1, 1, 1, 0},
	} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			for i := range c.objects {
				p.CMs.Put("ns", fmt.Sprintf("o%04d", i), "1", "app", "x")
			}
			from := p.Up.RV()
			var want []string
			for i := range c.changed { // kube-apiserver says DELETED to a client with the selector
				rv := p.CMs.Put("ns", fmt.Sprintf("o%04d", i), "2")
				want = append(want, fmt.Sprintf("DELETED ns/o%04d %d", i, rv))
			}
			p.Watch(bubble.AnyState).Await(c.objects)
			p.Up.Bump(1)
			w := p.Watch(bubble.Since+"&labelSelector=app", from)
			proxytest.WantStrings(t, "watch", proxytest.Strings(w.Await(c.changed)), want...)
			byName, lists := 0, 0
			for _, r := range p.Up.All() {
				switch {
				case r.Query.Get("resourceVersionMatch") != "Exact": // or a further page
				case r.Query.Get("fieldSelector") != "":
					byName++
				default:
					lists++
				}
			}
			if byName != c.byName || lists != c.lists {
				t.Errorf("%d objects and %d lists were requested, want %d and %d", byName, lists, c.byName, c.lists)
			}
			p.Passed(0)
		})
	}
}

// Upstream may not have those versions any more. Then the watch passes through, unless all that it
// asks for is in the replay.
func TestBackfillUndecidable(t *testing.T) {
	for from, passed := range map[int]int{102: 1, 100: 0} { // at 102 it is not known whether a and b had the label
		bubble.Run(t, fmt.Sprint(from), func(t *testing.T) {
			p := startLate(t)
			p.CMs.Put("ns", "z", "1")
			p.Up.On(proxytest.Form, 1, func(c *proxytest.Call) { c.Fail(http.StatusGone, "Expired", "compacted", 0) })
			w := p.Watch(bubble.Since+"&labelSelector=app", from)
			w.Await(1)
			p.Passed(passed)
			if passed == 0 {
				w.Want("ADDED ns/b 102", "ADDED ns/a 103", "DELETED ns/b 104")
			}
		})
	}
}

// If upstream has no history either, the client gets upstream's own 410.
func TestBackfillTooOld(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "q", "1")
		p.Up.Bump(50)
		p.CMs.Compact()
		p.Watch(bubble.AnyState).Await(2)
		for i := range 3 {
			w := p.Watch(bubble.Since, 120-i)
			if got := w.Await(1)[0]; got.Code != http.StatusGone || w.Ended() != nil {
				t.Errorf("got %s", got)
			}
			p.Passed(i + 1)
		}
		p.Up.WantCount(proxytest.Short, 1)
	})
}

// If a replay fails, the watch passes through.
func TestBackfillFails(t *testing.T) {
	event := proxytest.ConfigMaps.Event("MODIFIED", "ns", "b", 104)
	for name, answer := range map[string]func(*proxytest.Call){
		"refused": func(c *proxytest.Call) { c.Fail(500, "InternalError", "no", 0) },
		"ends":    func(c *proxytest.Call) { c.Write(event) },
		"breaks":  func(c *proxytest.Call) { c.Write(event); c.Abort() },
		"garbage": func(c *proxytest.Call) { c.Write("garbage\n") },
		"hangs":   (*proxytest.Call).Hang,
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p := startLate(t, bubble.Impatient)
			p.Up.Bump(1)
			p.Up.On(proxytest.Short, 1, answer)
			for range 2 {
				p.Watch(bubble.Since, 103).Want("MODIFIED ns/b 104", "DELETED ns/b 105", "ADDED other/c 106")
				p.Passed(1)
			}
		})
	}
}
