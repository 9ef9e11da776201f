package selfcheck_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// interval is that of self-checks in these tests, the shortest that there is.
const interval = time.Second

// checked is a proxy that compares its caches all the time.
type checked struct{ *bubble.Proxy }

// start runs a proxy with n objects, ns/a0 at resourceVersion 101 and so on, and a client's watch. Lists
// come in pages of two objects.
func start(t *testing.T, n int) (checked, *proxytest.Watcher) {
	p := checked{bubble.Start(t, proxytest.NewBubbleServer(t), func(o *proxy.Options) { o.SelfCheck.SelfCheckInterval = interval })}
	p.Up.On(proxytest.List, 1000, smallPage)
	for i := range n {
		p.CMs.Put("ns", fmt.Sprint("a", i), "secret")
	}
	w := p.Watch(bubble.AnyState)
	w.Await(n + 1)
	return p, w
}

// smallPage answers a list with a page of two objects.
func smallPage(c *proxytest.Call) {
	c.Query.Set("limit", "2")
	c.Serve()
}

// lanes returns the lanes as /debug/lanes shows them after another comparison.
func (p checked) lanes() []diagnose.DebugLane {
	p.T.Helper()
	time.Sleep(interval + 300*time.Millisecond)
	var d diagnose.DebugState
	p.AdminJSON("/debug/lanes", &d)
	return d.Lanes
}

// want fails the test unless the next comparison of the only lane has a result, and returns the lane.
func (p checked) want(result string) diagnose.DebugLane {
	p.T.Helper()
	all := p.lanes()
	if len(all) != 1 || all[0].SelfCheck == nil || string(all[0].SelfCheck.Result) != result {
		p.T.Fatalf("got %+v, want one lane that is %s", all, result)
	}
	return all[0]
}

// wantAlarms fails the test unless n comparisons have found a difference.
func (p checked) wantAlarms(n int) {
	p.T.Helper()
	if got := p.Log.With("Self-check found"); len(got) != n {
		p.T.Errorf("%d alarms, want %d: %s", len(got), n, got)
	}
}

// digestOf is the digest as package selfcheck describes it. objects are pairs of key and uid with a
// resourceVersion.
func digestOf(objects ...string) string {
	sum := new(big.Int)
	for _, o := range objects {
		hash := sha256.Sum256([]byte(strings.ReplaceAll(o, " ", "\x00")))
		sum.Add(sum, new(big.Int).SetBytes(hash[:16]))
	}
	return fmt.Sprintf("%032x", sum.Mod(sum, new(big.Int).Lsh(big.NewInt(1), 128)))
}

// Lanes that are right are never different, whether they are quiet or empty. /debug/lanes shows the
// digest, and when the next comparison is due.
func TestEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := start(t, 0)
		if c := p.want("equal").SelfCheck; c.Digest != digestOf() || c.Objects != 0 {
			t.Errorf("empty: got %+v", c)
		}
		for i := range 5 {
			p.CMs.Put("ns", fmt.Sprint("a", i), "1")
		}
		p.CMs.Put("ns-b", "x", "1") // "ns-b/" sorts before "ns/"
		p.CMs.Delete("ns", "a3")
		p.Up.Bump(5) // the lane does not hear of it
		l := p.want("equal")
		c, want := l.SelfCheck, digestOf("ns/a0 u1 101", "ns/a1 u2 102", "ns/a2 u3 103", "ns/a4 u5 105", "ns-b/x u6 106")
		if c.ResourceVersion != 112 || c.Digest != want || c.Objects != 5 || time.Since(c.Time) > interval {
			t.Errorf("got %+v, want %s of 5 at 112", c, want)
		}
		if due := time.Until(*l.SelfCheckDue); due < -100*time.Millisecond || due > interval { // it begins at a tick
			t.Errorf("the next is due in %s", due)
		}
		if _, text := p.Admin("/debug/lanes"); !strings.Contains(text, "  equal, ") {
			t.Errorf("no self-check in %s", text)
		}
		if got := p.Log.With("level=ERROR"); len(got) > 0 {
			t.Errorf("logged %s", got)
		}
	})
}

// A lane is compared while many changes come, and while its stream is late. A difference in the
// first page is found although the objects there change all the time.
func TestBusy(t *testing.T) {
	for name, ghosts := range map[string]int{"equal": 0, "different": 1} {
		bubble.Run(t, name, func(t *testing.T) {
			p, _ := start(t, 5)
			for range ghosts {
				p.CMs.Reflector().Send(proxytest.ConfigMaps.Event("ADDED", "ns", "a00", p.Up.Bump(1)))
			}
			for i := range 3 * int(interval/time.Millisecond) {
				time.Sleep(time.Millisecond)
				p.CMs.Put("ns", fmt.Sprint("a", i%12), "1")
				if i%7 == 0 {
					p.CMs.Delete("ns", fmt.Sprint("a", i%12))
				}
				if i%600 == 0 {
					st := p.CMs.Reflector()
					st.Hold()
					time.AfterFunc(400*time.Millisecond, st.Release) // later than catchUp
				}
			}
			p.wantAlarms(ghosts)
			if n := len(p.Log.With("[ns/a00: kube-apiserver does not have it]")); n != ghosts {
				t.Errorf("%d alarms name the object, want %d", n, ghosts)
			}
			time.Sleep(time.Second)
			p.want("equal")
		})
	}
}

// A lane that differs from kube-apiserver is found within an interval and mended, and its clients
// are told.
func TestDifferent(t *testing.T) {
	// lose hides a change from the lane, which is told that it has seen everything.
	lose := func(p checked, change func()) {
		st := p.CMs.Reflector()
		st.Hold()
		change()
		st.Send(proxytest.ConfigMaps.Bookmark(p.Up.Bump(1), false))
	}
	for name, c := range map[string]struct {
		spoil func(p checked)
		names string   // part of the log line that names the objects
		told  []string // what the client gets
	}{
		"object that is not there": {func(p checked) {
			p.CMs.Reflector().Send(proxytest.ConfigMaps.Event("ADDED", "ns", "ghost", p.Up.Bump(1)))
		}, "[ns/ghost: kube-apiserver does not have it]", []string{"ADDED ns/ghost 106", "DELETED ns/ghost 106"}},
		"lost deletion": {func(p checked) { lose(p, func() { p.CMs.Delete("ns", "a2") }) },
			"[ns/a2: kube-apiserver does not have it]", []string{"DELETED ns/a2 107"}},
		"lost object": {func(p checked) { lose(p, func() { p.CMs.Put("ns", "new", "1") }) },
			"[ns/new: missing]", []string{"ERROR 410"}},
		"lost change": {func(p checked) { lose(p, func() { p.CMs.Put("ns", "a1", "2") }) },
			"[ns/a1: at 102, kube-apiserver at 106]", []string{"ERROR 410"}},
		"lost replacement": {func(p checked) { lose(p, func() { p.CMs.Delete("ns", "a4"); p.CMs.Put("ns", "a4", "1") }) },
			"[ns/a4: at 105, kube-apiserver at 107]", []string{"ERROR 410"}},
		"many lost": {func(p checked) {
			lose(p, func() {
				for i := range 5 {
					p.CMs.Delete("ns", fmt.Sprint("a", i))
				}
			})
		}, "[ns/a0: kube-apiserver does not have it ns/a1: kube-apiserver does not have it", []string{"DELETED ns/a0 111",
			"DELETED ns/a1 111", "DELETED ns/a2 111", "DELETED ns/a3 111", "DELETED ns/a4 111"}},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p, w := start(t, 5)
			p.want("equal")
			c.spoil(p)
			p.lanes()
			if l := p.want("equal"); l.Relists+l.Resets == 0 {
				t.Errorf("got %+v", l)
			}
			p.wantAlarms(1)
			if len(p.Log.With("Self-check found objects that differ", "level=ERROR", c.names)) != 1 {
				t.Errorf("no alarm says %s", c.names)
			}
			proxytest.WantStrings(t, "watch", w.Strings()[6:], c.told...)
			want, rv := p.CMs.State()
			if got := proxytest.Fold(p.Watch(bubble.AnyState).AwaitVersion(rv)); !maps.Equal(got, want) {
				t.Errorf("after that the cache has %v, want %v", got, want)
			}
			if got := p.Log.With("secret"); len(got) > 0 {
				t.Errorf("logged what objects contain: %s", got)
			}
		})
	}
}

// A resource whose cache differs again after it has been listed again is passed through for an hour, and its
// watches end with 410.
func TestMistrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := start(t, 5)
		state := func() (d diagnose.DebugState) { p.AdminJSON("/debug/lanes", &d); return d }
		ghost := func() {
			p.CMs.Reflector().Send(proxytest.ConfigMaps.Event("ADDED", "ns", "ghost", p.Up.Bump(1)))
		}
		ghost()
		p.AwaitLog("Listed", "relisted=true")
		p.want("equal")
		ghost() // after a comparison that was equal, the first one again
		p.Until("second list", func() bool { return len(p.Log.With("Listed", "relisted=true")) == 2 })
		ghost()
		p.AwaitLog("Stopped serving a resource from its cache", "level=ERROR", "resource=v1/configmaps")
		if got := w.Strings(); got[len(got)-1] != "ERROR 410" {
			t.Errorf("the watch ended with %s", got[len(got)-1])
		}
		if d := state(); len(d.Lanes) != 0 || len(d.Mistrusted) != 1 || d.Mistrusted[0].Resource != "v1/configmaps" {
			t.Errorf("got %+v", d)
		}
		if _, text := p.Admin("/metrics"); !strings.Contains(text, "\nwatchfan_mistrusted_resources 1\n") {
			t.Error("no metric says so")
		}
		if _, text := p.Admin("/debug/lanes"); !strings.Contains(text, "v1/configmaps is passed through, for 59m yet: self-checks find") {
			t.Errorf("got %s", text)
		}
		passed := p.Up.Count(proxytest.Client)
		p.Watch(bubble.AnyState).Await(6)
		if n := p.Up.Count(proxytest.Client) - passed; n != 1 {
			t.Errorf("%d requests were passed through", n)
		}
		time.Sleep(time.Hour)
		p.Watch(bubble.AnyState).Await(6)
		if d := state(); len(d.Lanes) != 1 || len(d.Mistrusted) != 0 {
			t.Errorf("after an hour: %+v", d)
		}
	})
}

// A comparison that cannot be made is no alarm, and the next one succeeds.
func TestFailed(t *testing.T) {
	later := func(answer func(c *proxytest.Call)) func(*proxytest.Call) { // answers all pages but the first
		return func(c *proxytest.Call) {
			if c.Query.Get("continue") == "" {
				smallPage(c)
			} else {
				answer(c)
			}
		}
	}
	body := func(text string) func(c *proxytest.Call) { return func(c *proxytest.Call) { c.Write(text) } }
	item := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"ns","resourceVersion":"101","uid":"u"}}`, name)
	}
	cms := proxytest.ConfigMaps
	for name, test := range map[string]struct {
		answer func(*proxytest.Call)
		err    string
	}{
		"no answer": {func(c *proxytest.Call) { c.Fail(503, "ServiceUnavailable", "busy", 0) }, "503"},
		"compacted": {later(func(c *proxytest.Call) {
			c.Fail(http.StatusGone, "Expired", "The provided continue parameter is too old", 0)
		}), "410 Expired"},
		"another resourceVersion": {later(body(cms.ListBody("999", "", item("a9")))), "a page is as of 999, the first as of 105"},
		"another order":           {later(body(cms.ListBody("105", "", item("a9"), item("a8")))), "not in the order of their keys"},
		"page repeated":           {later(body(cms.ListBody("105", "x", item("a0")))), "not in the order of their keys"},
		"empty page":              {later(body(cms.ListBody("105", "x"))), "a page is empty, and not the last"},
		"no list":                 {body("secret"), "read list"},
		"half a list":             {body(strings.TrimSuffix(cms.ListBody("105", "", item("a0")), "]}\n")), "read list"},
		"object without a name":   {body(cms.ListBody("105", "", item(""))), "without metadata.name"},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			p, w := start(t, 5)
			digest := p.want("equal").SelfCheck.Digest
			p.Up.Forget()
			p.Up.On(proxytest.List, 1000, test.answer)
			if c := p.want("failed").SelfCheck; c.Digest != digest || c.ResourceVersion != 105 {
				t.Errorf("got %+v, want the last digest", c)
			}
			if len(p.Log.With("Self-check failed", test.err)) == 0 {
				t.Errorf("no log of %s", test.err)
			}
			p.Up.Forget()
			p.want("equal")
			p.wantAlarms(0)
			if !w.Open() || len(w.Events()) != 6 {
				t.Errorf("the client was told %s", w.Strings())
			}
		})
	}
}

// Lanes of one resource are compared with the same list, each by itself. Tables are not compared.
func TestRepresentations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		p, _ := start(t, 3)
		p.Up.Forget()
		whole := p.CMs.Reflector()
		for path, accept := range map[string]string{bubble.AnyState: metadata,
			bubble.CMs + "?watch=1&resourceVersion=103": proxytest.TableAccept} {
			p.Send(bubble.Request{Target: path, Header: []string{"Accept", accept}}).Watch()
		}
		compared := 0
		for _, l := range p.lanes() {
			if l.Table != (l.SelfCheck == nil) {
				t.Errorf("compared: %+v", l)
			} else if !l.Table {
				compared++
				if c := l.SelfCheck; c.Result != "equal" || c.ResourceVersion != 103 ||
					c.Digest != digestOf("ns/a0 u1 101", "ns/a1 u2 102", "ns/a2 u3 103") {
					t.Errorf("%s: got %+v", l.Encoding, c)
				}
			}
		}
		if compared != 2 {
			t.Errorf("%d lanes were compared", compared)
		}
		before := p.Up.Count(proxytest.List)
		time.Sleep(3 * interval)
		if lists := p.Up.Count(proxytest.List) - before; lists < 2 || lists > 6 {
			t.Errorf("%d lists in three intervals, want one or two each", lists)
		}
		whole.Send(proxytest.ConfigMaps.Event("ADDED", "ns", "ghost", p.Up.Bump(1)))
		p.lanes()
		p.wantAlarms(1)
		if len(p.Log.With("Self-check found objects that differ", "encoding=json ", "ns/ghost")) != 1 {
			t.Error("the alarm is not about the lane that differs")
		}
	})
}

// A resource without a watch cache, whose stream never says how far it has come, is compared too.
func TestUncached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := start(t, 0)
		w.Close()
		p.Up.Collection(proxytest.Events).Put("ns", "e", "1")
		p.Watch("/api/v1/events?watch=1&resourceVersion=0").Await(1)
		p.Up.Bump(5)
		p.lanes()
		for _, l := range p.lanes() {
			if c := l.SelfCheck; l.Resource == "events" && (c.Result != "equal" || c.ResourceVersion != 106 || c.Digest != digestOf("ns/e u1 101")) {
				t.Errorf("got %+v", c)
			}
		}
	})
}

// With an interval of 0 nothing is compared.
func TestOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := checked{bubble.Start(t, proxytest.NewBubbleServer(t), func(o *proxy.Options) { o.SelfCheck.SelfCheckInterval = 0 })}
		p.Watch(bubble.AnyState).Await(1)
		time.Sleep(10 * interval)
		if l := p.lanes()[0]; p.Up.Count(proxytest.List) != 0 || l.SelfCheckDue != nil || l.SelfCheck != nil {
			t.Errorf("%d lists, got %+v", p.Up.Count(proxytest.List), l)
		}
	})
}
