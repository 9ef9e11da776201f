package fresh_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// large is the data of an object that makes a collection too large to be listed for a proof.
var large = strings.Repeat("x", 300<<10)

// startQuiet runs a proxy with a lane of one object, written at resourceVersion 101.
func startQuiet(t *testing.T, data string, change ...func(*proxy.Options)) *bubble.Proxy {
	p := bubble.Start(t, proxytest.NewBubbleServer(t), change...)
	p.CMs.Put("ns", "a", data)
	p.Watch(bubble.AnyState).Await(2)
	return p
}

// One proof serves all requests that came before it began. A later request waits for the next
// proof.
func TestProofsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startQuiet(t, "1")
		st := p.Up.Reflector()
		st.Hold()
		p.Up.On(proxytest.List, 1, func(c *proxytest.Call) { c.Serve(); time.Sleep(time.Second) })
		first := p.Begin(bubble.Request{Target: bubble.Fresh})
		synctest.Wait()           // the list's state is taken
		p.CMs.Put("ns", "b", "1") // the first watch need not see it, and the others must
		var others []*bubble.Client
		for range 20 {
			others = append(others, p.Begin(bubble.Request{Target: bubble.Fresh}))
		}
		first.Watch().Want("ADDED ns/a 101", "END 101")
		time.Sleep(time.Second)
		if others[0].Answered() {
			t.Error("a later watch was answered before the write had come")
		}
		st.Release()
		for _, c := range others {
			c.Watch().Want("ADDED ns/a 101", "ADDED ns/b 102", "END 102")
		}
		p.Up.WantCount(proxytest.List, 2)
		p.Passed(0)
	})
}

// A watch that waits for a proof by list does not see changes between the cache and the list that
// have undone each other.
func TestProofByListSkipsChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startQuiet(t, "1")
		old := p.Watch(bubble.AnyState)
		old.Await(2)
		st := p.Up.Reflector()
		st.Hold()
		p.CMs.Put("ns", "b", "1")
		p.CMs.Delete("ns", "b")
		w := p.Watch(bubble.Fresh)
		none := p.Watch(bubble.CMs + "?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
		w.Await(2)
		st.Release()
		p.CMs.Put("ns", "c", "1")
		synctest.Wait()
		proxytest.WantStrings(t, "watch", w.Strings(), "ADDED ns/a 101", "END 103", "ADDED ns/c 104")
		proxytest.WantStrings(t, "watch from now", none.Strings(), "ADDED ns/c 104")
		proxytest.WantStrings(t, "older watch", old.Strings(), "ADDED ns/a 101", "END 101", "ADDED ns/b 102",
			"DELETED ns/b 103", "ADDED ns/c 104")
		p.Passed(0)
	})
}

// A list proves nothing about a cache that has an object which the list has not.
func TestProofOfDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startQuiet(t, "1")
		st := p.Up.Reflector()
		st.Hold()
		p.CMs.Delete("ns", "a")
		c := p.Begin(bubble.Request{Target: bubble.Fresh})
		time.Sleep(time.Second)
		st.Release()
		c.Watch().Want("END 102")
		p.Passed(0)
	})
}

// A state older than the request is not shown. The watch waits for the lane's own stream. If that
// is too late, the watch passes through.
func TestProofWaits(t *testing.T) {
	for name, data := range map[string]string{"list": "1", "watch": large} {
		bubble.Run(t, name, func(t *testing.T) {
			p := startQuiet(t, data, bubble.SpareLists)
			st := p.Up.Reflector()
			st.Hold()
			p.CMs.Put("ns", "b", "1")
			p.Up.Bump(3)
			c := p.Begin(bubble.Request{Target: bubble.Fresh})
			time.Sleep(10 * time.Second)
			if c.Answered() {
				t.Fatalf("answered with a stream that lags behind: %s", c.Watch().Strings())
			}
			st.Release()
			w := c.Watch()
			events := w.AwaitVersion(p.CMs.Put("ns", "c", "1"))
			if events[2].RV < 102 {
				t.Errorf("end bookmark at %d", events[2].RV)
			}
			got := proxytest.Strings(slices.Delete(slices.Clone(events), 2, 3))
			proxytest.WantStrings(t, "watch", got, "ADDED ns/a 101", "ADDED ns/b 102", "ADDED ns/c 106")
			p.Passed(0)
		})
		bubble.Run(t, name+" in vain", func(t *testing.T) {
			p := startQuiet(t, data, bubble.Impatient, bubble.SpareLists)
			p.Up.Reflector().Hold()
			p.CMs.Put("ns", "b", "1")
			began := time.Now()
			w := p.Watch(bubble.Fresh)
			if waited := time.Since(began); waited != 1500*time.Millisecond {
				t.Errorf("passed through after %s", waited)
			}
			w.Want("ADDED ns/a 101", "ADDED ns/b 102", "END 102")
			p.Passed(1)
		})
	}
}

// A large quiet collection is proved by a second watch's bookmark. If that watch says nothing,
// another begins.
func TestProofByWatch(t *testing.T) {
	cms := proxytest.ConfigMaps
	for name, answer := range map[string]func(*proxytest.Call){
		"bookmark": (*proxytest.Call).Serve,
		"hangs":    (*proxytest.Call).Hang,
		"an event we never get": func(c *proxytest.Call) {
			c.Write(cms.Event("ADDED", "ns", "q", 105), cms.Bookmark(106, false))
		},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p := startQuiet(t, large, bubble.Impatient, bubble.SpareLists)
			p.Up.Bump(5)
			p.Up.On(proxytest.Short, 1, answer)
			var watches []*bubble.Client
			for range 10 {
				watches = append(watches, p.Begin(bubble.Request{Target: bubble.Fresh}))
				synctest.Wait() // each asks at once, because upstream has answered the one before
			}
			for _, c := range watches {
				c.Watch().Want("ADDED ns/a 101", "END 106")
			}
			second := 2
			if name == "bookmark" {
				second = 1
			}
			for kind, want := range map[proxytest.Kind]int{proxytest.Probe: 10, proxytest.Short: second, proxytest.List: 0} {
				p.Up.WantCount(kind, want)
			}
			p.Up.Reflector().Abort() // the lane resumes from the resourceVersion of the proof
			p.Up.AwaitCount(proxytest.Watch, 1)
			if rv := p.Up.Requests(proxytest.Watch)[0].Query.Get("resourceVersion"); rv != "106" {
				t.Errorf("resumed from %s, want 106", rv)
			}
			p.Passed(0)
		})
	}
}

// If a proof fails, the watch passes through, at once unless upstream hangs.
func TestProofFails(t *testing.T) {
	cms := proxytest.ConfigMaps
	for name, test := range map[string]struct {
		data   string
		kind   proxytest.Kind
		answer func(*proxytest.Call)
	}{
		"list refused":    {"1", proxytest.List, func(c *proxytest.Call) { c.Fail(500, "InternalError", "no", 0) }},
		"list breaks":     {"1", proxytest.List, func(c *proxytest.Call) { c.Write(`{"kind":`); c.Abort() }},
		"list hangs":      {"1", proxytest.List, (*proxytest.Call).Hang},
		"list of garbage": {"1", proxytest.List, func(c *proxytest.Call) { c.Write(cms.ListBody("106", "", `{}`)) }},
		"list at ''":      {"1", proxytest.List, func(c *proxytest.Call) { c.Write(cms.ListBody("", "")) }},
		"probe refused":   {large, proxytest.Probe, func(c *proxytest.Call) { c.Fail(422, "Invalid", "no", 0) }},
		"probe ends":      {large, proxytest.Probe, func(c *proxytest.Call) { c.Write(`{"kind":`) }},
		"probe hangs":     {large, proxytest.Probe, (*proxytest.Call).Hang},
		"probe fails":     {large, proxytest.Probe, func(c *proxytest.Call) { c.Fail(504, "Timeout", "", 1) }},
		"second watch refused": {large, proxytest.Short, func(c *proxytest.Call) {
			c.Fail(429, "TooManyRequests", "no", 1)
		}},
		"second watch too old": {large, proxytest.Short, func(c *proxytest.Call) {
			c.Write(proxytest.ErrorEvent(410, "Expired", ""))
		}},
		"second watch ends": {large, proxytest.Short, func(c *proxytest.Call) { c.Write("") }},
		"bookmark too old":  {large, proxytest.Short, func(c *proxytest.Call) { c.Write(cms.Bookmark(105, false)) }},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p := startQuiet(t, test.data, bubble.Impatient, bubble.SpareLists)
			p.Up.Bump(5)
			p.Up.On(test.kind, 1, test.answer)
			began, wait := time.Now(), time.Duration(0)
			if strings.Contains(name, "hangs") {
				wait = 1500 * time.Millisecond
			}
			p.Watch(bubble.Fresh).Want("ADDED ns/a 101", "END 106")
			p.Passed(1)
			if took := time.Since(began); took != wait {
				t.Errorf("passed through after %s, want %s", took, wait)
			}
			p.Up.WantCount(test.kind, 1)
			p.Watch(bubble.Fresh).Await(2) // the next proof succeeds
			p.Passed(1)
		})
	}
}

// A scout proves nothing about a cache that has been listed again since the scout began.
func TestProofDuringRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startQuiet(t, large, bubble.SpareLists)
		object := p.Watch(bubble.AnyState).Await(2)[0].Raw
		p.Up.Bump(5)
		relisted := make(chan struct{})
		p.Up.On(proxytest.Short, 1, func(c *proxytest.Call) { <-relisted; c.Serve() })
		p.Up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { // older than the probe's answer
			c.Write(object, p.CMs.Bookmark(103, true))
			c.Hang()
		})
		c := p.Begin(bubble.Request{Target: bubble.Fresh})
		p.Up.AwaitCount(proxytest.Short, 1)
		p.Up.Reflector().Send("garbage\n")
		p.AwaitLog("relisted=true")
		close(relisted)
		c.Watch().Want("ADDED ns/a 101", "END 106")
		p.Passed(1)
	})
}

// A WatchList from a resourceVersion that the cache has not reached waits for it, or passes through:
// "a state at least as fresh as the resourceVersion".
func TestWatchListNotOlderThan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startQuiet(t, "1", bubble.Impatient)
		rv := p.Up.Bump(5)
		const path = bubble.CMs +
			"?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=%d"
		p.Watch(path, 100).Want("ADDED ns/a 101", "END 101")
		if p.Up.Count(proxytest.List) != 0 {
			t.Error("a version that the cache has passed was proved")
		}
		p.Watch(path, rv).Want("ADDED ns/a 101", "END 106")
		p.Passed(0)
		p.Watch(path, rv+1000).Await(2)
		p.Passed(1)
	})
}

// A resource without a watch cache upstream is never proved.
func TestUncachedIsNotProved(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Up.Collection(proxytest.Events).Put("ns", "e", "1")
		path := "/api/v1/events?watch=1&allowWatchBookmarks=true"
		p.Watch("%s&resourceVersion=0", path).Await(2)
		p.Passed(0)
		p.Watch("%s", path).Await(2)
		p.Passed(1)
	})
}
