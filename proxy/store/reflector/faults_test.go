package reflector_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// fault is something that goes wrong upstream while clients watch. Clients get exactly the
// changes, or after a relist exactly the differences. These come in resourceVersion order, with the
// deletions first, at the last resourceVersion that was known before. The clients' streams stay
// open.
type fault struct {
	name  string
	fault func(p *bubble.Proxy, st *proxytest.Stream) // breaks the reflector's stream st
	log   string                                      // part of a logged line
	want  []string                                    // resumed or relisted
}

// The events of a watch of all objects in fault.run, by how the reflector goes on.
var (
	resumed = []string{"ADDED ns/a 101", "ADDED ns/b 102", "ADDED ns/c 103", "END 103", "MODIFIED ns/a 104",
		"MODIFIED ns/b 105", "DELETED ns/c 106", "ADDED ns/d 107", "ADDED ns/e 108"}
	relisted = []string{"ADDED ns/a 101", "ADDED ns/b 102", "ADDED ns/c 103", "END 103", "MODIFIED ns/a 104",
		"DELETED ns/c 104", "MODIFIED ns/b 105", "ADDED ns/d 107", "ADDED ns/e 108"}
)

// relist breaks the reflector's stream. The list that follows is answered by answer.
func relist(answer func(*proxytest.Call)) func(*bubble.Proxy, *proxytest.Stream) {
	return func(p *bubble.Proxy, st *proxytest.Stream) {
		p.Up.On(proxytest.WatchList, 1, answer)
		st.Send("garbage\n")
	}
}

// run makes changes before, during and after the fault.
func (r *fault) run(t *testing.T) {
	p := bubble.Start(t, proxytest.NewBubbleServer(t))
	p.CMs.Put("ns", "a", "1")
	p.CMs.Put("ns", "b", "1", "app", "x")
	p.CMs.Put("ns", "c", "1")
	all, app := p.Watch(bubble.AnyState), p.Watch(bubble.AnyState+"&labelSelector=app%%3Dx")
	all.Await(4)
	app.Await(2)
	st := p.Up.Reflector()
	p.CMs.Put("ns", "a", "2")
	all.Await(5)

	st.Hold()
	p.CMs.Put("ns", "b", "2")
	p.CMs.Delete("ns", "c")
	p.CMs.Put("ns", "d", "2", "app", "x")
	r.fault(p, st)
	all.Await(len(r.want) - 1)
	p.CMs.Put("ns", "e", "2")
	all.Await(len(r.want))
	app.Await(4)
	proxytest.WantStrings(t, "watch of all", all.Strings(), r.want...)
	left := "DELETED ns/b 105"
	if slices.Equal(r.want, relisted) {
		left = "DELETED ns/b 104" // a relist shows it like a deletion
	}
	proxytest.WantStrings(t, "watch with a selector", app.Strings(), "ADDED ns/b 102", "END 103", left, "ADDED ns/d 107")
	if !all.Open() || !app.Open() {
		t.Error("a client's stream ended")
	}
	if r.log != "" && len(p.Log.With(r.log)) == 0 {
		t.Errorf("nothing logged with %q", r.log)
	}
	if got := p.Up.Count(proxytest.WatchList) > 1; got != slices.Equal(r.want, relisted) {
		t.Errorf("listed anew: %t", got)
	}
	for _, r := range p.Up.Requests(proxytest.Watch)[:min(1, p.Up.Count(proxytest.Watch))] {
		if rv := r.Query.Get("resourceVersion"); rv != "104" {
			t.Errorf("resumed from %s, want 104", rv)
		}
	}
	p.Passed(0)
}

// sends is a fault that is these bytes on the reflector's stream.
func sends(text string) func(*bubble.Proxy, *proxytest.Stream) {
	return func(_ *bubble.Proxy, st *proxytest.Stream) { st.Send(text) }
}

// refused breaks the reflector's stream. The next watch is answered by answer.
func refused(answer func(*proxytest.Call)) func(*bubble.Proxy, *proxytest.Stream) {
	return func(p *bubble.Proxy, st *proxytest.Stream) {
		p.Up.On(proxytest.Watch, 1, answer)
		st.Abort()
	}
}

// fails and writes are answers.
func fails(code int, reason, message string) func(*proxytest.Call) {
	return func(c *proxytest.Call) { c.Fail(code, reason, message, 0) }
}

func writes(lines ...string) func(*proxytest.Call) {
	return func(c *proxytest.Call) { c.Write(lines...) }
}

// A watch that breaks or ends is resumed from the last resourceVersion. After bytes that are no event, or an
// event or a bookmark whose resourceVersion is missing or does not increase, the collection is listed again.
// After an error, the error says which of both. A list that fails is requested again, and clients see nothing
// of the failed one.
func TestFaults(t *testing.T) {
	cms := proxytest.ConfigMaps
	for _, f := range []fault{
		{"connection breaks", func(_ *bubble.Proxy, st *proxytest.Stream) { st.Abort() }, "relist=false", resumed},
		{"stream ends", func(_ *bubble.Proxy, st *proxytest.Stream) { st.End() }, "", resumed},
		{"half an event, then the end", func(_ *bubble.Proxy, st *proxytest.Stream) {
			st.Send(`{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"`)
			st.End()
		}, "stream ended within an event", resumed},

		{"garbage", sends("garbage\n"), "read watch event", relisted},
		{"event of 17 MB", sends(`{"type":"ADDED","object":{"metadata":{"name":"q","resourceVersion":"200"},"data":{"v":"` +
			strings.Repeat("x", 17<<20) + `"}}}` + "\n"), "16 MiB", relisted},
		{"resourceVersion goes backwards", sends(cms.Event("MODIFIED", "ns", "a", 50)), "did not increase: 50 after 104", relisted},
		{"resourceVersion repeats", sends(cms.Event("MODIFIED", "ns", "a", 104)), "did not increase: 104 after 104", relisted},
		{"deletion of another object at the same resourceVersion", sends(cms.Event("DELETED", "ns", "c", 104)),
			"did not increase: 104 after 104", relisted},
		{"bookmark goes backwards", sends(cms.Bookmark(50, false)), "bookmark 50 after 104", relisted},

		{"ERROR 410", sends(proxytest.ErrorEvent(410, "Expired", "too old")), "410 Expired: too old", relisted},
		{"ERROR 500", sends(proxytest.ErrorEvent(500, "InternalError", "oh")), "500 InternalError: oh", resumed},
		{"ERROR with garbage", sends(`{"type":"ERROR","object":"what"}` + "\n"), "expected an object", relisted},
		{"ERROR without Status", sends(`{"type":"ERROR","object":{}}` + "\n"), "upstream: 0", resumed},
		{"410 as the watch begins", refused(fails(410, "Expired", "too old")), "from 104: upstream: 410 Expired", relisted},
		{"ERROR 410 as the watch begins", func(p *bubble.Proxy, st *proxytest.Stream) {
			p.CMs.Compact()
			st.Abort()
		}, "too old resource version: 104 (107)", relisted},
		{"503, then half a line", func(p *bubble.Proxy, st *proxytest.Stream) {
			p.Up.On(proxytest.Watch, 1, fails(503, "ServiceUnavailable", "busy"))
			refused(writes("oops"))(p, st)
		}, "503 ServiceUnavailable: busy", resumed},

		{"the relist breaks", relist(func(c *proxytest.Call) { c.Write(cms.Event("ADDED", "ns", "a", 104), `{"type":`); c.Abort() }),
			"initial events", relisted},
		{"the relist is garbage", relist(writes("\x00\n")), "initial events: read watch event", relisted},
		{"the relist is no list", relist(writes(cms.Event("MODIFIED", "ns", "a", 104), cms.Bookmark(500, true))),
			"MODIFIED among the initial events", relisted},
		{"the relist lacks its end", relist(writes(cms.Event("ADDED", "ns", "a", 104))), "initial events: EOF", relisted},
		{"the relist has another bookmark", relist(writes(cms.Bookmark(500, false))), "BOOKMARK among the initial events", relisted},
		{"the relist is refused with 500", relist(fails(500, "InternalError", "oh")), "500 InternalError: oh", relisted},
		{"our credential is refused", relist(fails(401, "Unauthorized", "Unauthorized")), "401 Unauthorized", relisted},
		{"our right is gone", relist(fails(403, "Forbidden", "not yours")), "403 Forbidden: not yours", relisted},
		{"the relist is of another type", relist(func(c *proxytest.Call) {
			c.W.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(c.W, "<html>")
		}), `upstream answered \"text/html\"`, relisted},
		{"the relist has no type", relist(func(c *proxytest.Call) {
			c.W.Header()["Content-Type"] = nil
			_, _ = io.WriteString(c.W, cms.Event("ADDED", "ns", "a", 104))
		}), `upstream answered \"\"`, relisted},
		{"the relist fails", relist(writes(proxytest.ErrorEvent(429, "TooManyRequests", "busy"))), "429 TooManyRequests", relisted},
		{"the relist is older than its objects", relist(writes(cms.Event("ADDED", "ns", "q", 300), cms.Bookmark(200, true))),
			"some objects are newer", relisted},
	} {
		t.Run(f.name, func(t *testing.T) { synctest.Test(t, f.run) })
	}
}

// wantExpired fails the test unless a watch ends properly behind an ERROR event with 410, and the log says why.
func wantExpired(p *bubble.Proxy, w *proxytest.Watcher) {
	p.T.Helper()
	w.WantEnd()
	events := w.Strings()
	if last := events[len(events)-1]; last != "ERROR 410" {
		p.T.Errorf("last event is %s, want ERROR 410; all: %s", last, events)
	}
	p.AwaitLog("level=ERROR", "went back in time")
}

// After etcd was restored from a backup, every client must list again: its watch gets 410 and ends properly.
// A kube-apiserver that accepts a watch from a future resourceVersion sends nothing, and the reflector
// notices the restore when it resumes the watch.
func TestBackwards(t *testing.T) {
	for name, refuses := range map[string]int{"refused": 1, "unnoticed": 0} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			for _, name := range []string{"a", "b", "c"} {
				p.CMs.Put("ns", name, "1")
			}
			watchers := []*proxytest.Watcher{p.Watch(bubble.AnyState), p.Watch(bubble.CMs + "?watch=1&resourceVersion=102"),
				p.Watch(bubble.AnyState + "&labelSelector=none")}
			watchers[0].Await(4)
			p.Up.On(proxytest.Watch, refuses, fails(410, "Expired", "too old"))
			p.CMs.Restore(60, "a", "z")
			for _, w := range watchers {
				wantExpired(p, w)
			}
			w := p.Watch(bubble.Fresh)
			w.Want("ADDED ns/a 60", "ADDED ns/z 59", "END 60")
			p.CMs.Put("ns", "n", "1")
			w.AwaitVersion(61)
			p.Passed(0)
		})
	}
}

// A client may have been shown a state ahead of the cache, as a proof says. An etcd that was restored to before that, and
// not to before the cache, has gone back for this client: it would not be sent what happens up to there.
func TestBackwardsOfProof(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.Watch(bubble.AnyState).Await(2)
		p.Up.Bump(50) // something else is written
		if _, body := p.Get(bubble.CMs); !strings.Contains(body, `"resourceVersion":"151"`) {
			t.Fatalf("a consistent list: %s", body)
		}
		w := p.Watch(bubble.Since, 151)
		p.CMs.Restore(140, "a")
		p.CMs.Put("ns", "b", "1") // 141
		wantExpired(p, w)
		p.Watch(bubble.Fresh).Want("ADDED ns/a 140", "ADDED ns/b 141", "END 141")
		p.Passed(0)
	}, bubble.NoneAlone)
}

// If a restored etcd has already passed the lane's resourceVersion, its watch goes on normally. A
// consistent read reveals the restore.
func TestBackwardsAndPast(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		for _, name := range []string{"a", "b", "c"} {
			p.CMs.Put("ns", name, "1")
		}
		w := p.Watch(bubble.AnyState)
		w.Await(4)
		p.Up.On(proxytest.Probe, 1, (*proxytest.Call).Abort) // upstream does not answer before it has passed 103
		p.CMs.Restore(60, "a", "z")
		p.Up.Bump(100)
		p.Up.AwaitCount(proxytest.Watch, 1)
		p.CMs.SendBookmark(proxytest.Watch)
		synctest.Wait()
		if !w.Open() {
			t.Fatal("the stream ended before anybody could know")
		}
		if _, body := p.Get(bubble.CMs); !strings.Contains(body, `"name":"z"`) || strings.Contains(body, `"name":"c"`) {
			t.Errorf("a consistent list: %s", body)
		}
		wantExpired(p, w)
		p.Watch(bubble.AnyState).Want("ADDED ns/a 60", "ADDED ns/z 59", "END 160")
		p.Passed(1)
	}, bubble.NoneAlone, bubble.Impatient)
}

// A cache that is known to be wrong is listed again within half a minute, although its watch has just been
// broken and nobody asks again.
func TestBackwardsAfterBreak(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		w := p.Watch(bubble.AnyState)
		w.Await(2)
		p.Up.Reflector().Hold()
		rv := p.CMs.Put("ns", "b", "1")
		p.Get(bubble.CMs) // is not proved, which breaks the watch
		w.AwaitVersion(rv)
		p.Up.On(proxytest.Probe, 1, (*proxytest.Call).Abort) // upstream does not answer before it has passed 102
		p.CMs.Restore(60, "a", "z")
		p.Up.Bump(100)
		p.Up.AwaitCount(proxytest.Watch, 2)
		p.CMs.SendBookmark(proxytest.Watch)
		synctest.Wait()
		if _, body := p.Get(bubble.CMs); !strings.Contains(body, `"name":"z"`) {
			t.Errorf("a consistent list: %s", body)
		}
		p.AwaitLog("The cache is not what upstream is")
		p.Up.WantCount(proxytest.WatchList, 1)
		time.Sleep(30 * time.Second)
		p.Up.WantCount(proxytest.WatchList, 2)
		wantExpired(p, w)
		if _, body := p.Get(bubble.CMs + "?resourceVersion=0"); !strings.Contains(body, `"name":"z"`) {
			t.Errorf("any state: %s", body)
		}
	}, bubble.NoneAlone, bubble.Impatient)
}

// The reflector's attempts have growing pauses, whatever upstream answers.
func TestBackoff(t *testing.T) {
	for name, answer := range map[string]func(*proxytest.Call){
		"refuses":     fails(500, "InternalError", "no"),
		"ends":        writes(""),
		"breaks":      (*proxytest.Call).Abort,
		"garbage":     writes("garbage\n"),
		"error event": writes(proxytest.ErrorEvent(410, "Expired", "")),
	} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			p.Watch(bubble.AnyState).Await(1)
			p.Up.On(proxytest.Watch, 1000, answer)
			p.Up.On(proxytest.WatchList, 1000, answer)
			p.Up.Reflector().Abort()
			requests := func() int { return p.Up.Count(proxytest.Watch) + p.Up.Count(proxytest.WatchList) }
			time.Sleep(2 * time.Second)
			// The requests come after 0.1 to 0.2 s, 0.3 to 0.6 s, 0.7 to 1.4 s and so on. net/http
			// repeats some of them.
			if n := requests(); n < 3 || n > 15 {
				t.Errorf("%d requests in 2 s", n)
			}
			p.Watch(bubble.AnyState).Await(1) // the cache is served meanwhile
			p.Passed(0)
		})
	}
}

// An upstream says how long to wait. If that is more than a minute, the reflector waits for a minute.
func TestRetryAfter(t *testing.T) {
	busy := func(seconds int) func(*proxytest.Call) {
		return func(c *proxytest.Call) { c.Fail(429, "TooManyRequests", "busy", seconds) }
	}
	for name, c := range map[string]struct {
		answer func(*proxytest.Call)
		wait   time.Duration
	}{
		"429":   {busy(2), 2 * time.Second},
		"ERROR": {writes(`{"type":"ERROR","object":{"code":429,"details":{"retryAfterSeconds":2}}}` + "\n"), 2 * time.Second},
		"long":  {busy(100_000), time.Minute},
	} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			p.Watch(bubble.AnyState).Await(1)
			p.Up.On(proxytest.Watch, 1, c.answer)
			p.Up.Reflector().Abort()
			time.Sleep(c.wait)
			p.Up.WantCount(proxytest.Watch, 1)
			time.Sleep(c.wait)
			p.Up.WantCount(proxytest.Watch, 2)
		})
	}
}

// If upstream does not know sendInitialEvents, the reflector lists page by page, and watches get no
// bookmark at the end of the initial events.
func TestWithoutWatchList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		up.SetWatchList(false)
		p := bubble.Start(t, up)
		for i := range 1100 {
			p.CMs.Put("ns", fmt.Sprintf("o%04d", i), "1")
		}
		p.Up.On(proxytest.List, 1, (*proxytest.Call).Serve)
		p.Up.On(proxytest.List, 1, func(c *proxytest.Call) { c.Fail(410, "Expired", "continue too old", 0) })

		w := p.Watch(bubble.AnyState) // passed through: the first attempt fails
		w.Await(1100)
		p.AwaitLog("objects=1100")
		w = p.Watch(bubble.AnyState)
		p.CMs.Put("ns", "z", "1")
		events := w.Await(1101)
		if got := events[1100].String(); got != "ADDED ns/z 1201" {
			t.Errorf("behind the initial events came %s", got)
		}
		lists := p.Up.Requests(proxytest.List)
		if len(lists) != 5 { // a page, a failing page, three pages
			t.Errorf("%d list requests, want 5", len(lists))
		}
		if q := lists[0].Query; q.Get("limit") != "500" || q.Get("resourceVersion") != "" {
			t.Errorf("listed with %v", q)
		}
		if rv := p.Up.Requests(proxytest.Watch)[0].Query.Get("resourceVersion"); rv != "1200" {
			t.Errorf("watched from %s, want 1200", rv)
		}
		p.Passed(1)
		// Upstream itself answers that it does not know sendInitialEvents.
		resp, _ := p.Get(bubble.CMs +
			"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
		if resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("got status %s", resp.Status)
		}
	})
}

// A list that cannot be correct does not fill the cache.
func TestBadList(t *testing.T) {
	item := func(rv string) string {
		return `{"metadata":{"name":"a","namespace":"ns","resourceVersion":"` + rv + `"}}`
	}
	cms := proxytest.ConfigMaps
	for name, body := range map[string]string{
		"empty resourceVersion":        cms.ListBody("", "", item("7")),
		"resourceVersion 0":            cms.ListBody("0", "", item("7")),
		"resourceVersion no number":    cms.ListBody("seven", "", item("7")),
		"item without resourceVersion": cms.ListBody("7", "", item("")),
		"item newer than the list":     cms.ListBody("7", "", item("8")),
		"truncated":                    strings.TrimSuffix(cms.ListBody("7", "", item("7")), "]}\n"),
		"two lists":                    cms.ListBody("7", "") + cms.ListBody("7", ""),
		"html":                         "<html>",
		"null":                         "null",
	} {
		bubble.Run(t, name, func(t *testing.T) {
			up := proxytest.NewBubbleServer(t)
			up.SetWatchList(false)
			p := bubble.Start(t, up)
			p.CMs.Put("ns", "real", "1")
			p.Up.On(proxytest.List, 1, writes(body))
			p.Watch(bubble.AnyState)
			p.AwaitLog("msg=Listed")
			p.AwaitLog("Upstream watch broke", "list v1/configmaps")
			_, body := p.Get(bubble.CMs + "?resourceVersion=0")
			if !strings.Contains(body, `"real"`) || strings.Contains(body, `"a"`) {
				t.Errorf("got %s", body)
			}
			p.Passed(1)
		})
	}
}

// The reflector learns the form of lists from an empty list. If that answer cannot be used, it asks
// again, and the request that waits passes through.
func TestEmptyListForm(t *testing.T) {
	for name, body := range map[string]string{
		"html":             "<html>",
		"nothing":          "",
		"unknown form":     `{"kind":"ConfigMapList", "metadata":{"resourceVersion":"7"},"items":[]}`,
		"resourceVersion ": proxytest.ConfigMaps.ListBody("", ""),
	} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			p.Up.On(proxytest.Form, 1, writes(body))
			p.Watch(bubble.AnyState).Await(1)
			p.Passed(1)
			p.AwaitLog("msg=Listed")
		})
	}
}

// A relist compares two states. Changes between them that have undone each other are in no history
// here. A client that has seen a state in between, from another replica or from upstream itself, may
// not resume here: it gets 410 and lists, which costs upstream nothing.
func TestRelistGap(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		p.Watch(bubble.AnyState).Await(2)
		st := p.Up.Reflector()
		st.Hold()
		p.CMs.Put("ns", "x", "1")
		p.CMs.Put("ns", "y", "1")
		ahead, behind := p.Watch(bubble.CMs+"?watch=1&resourceVersion=102"), p.Watch(bubble.CMs+"?watch=1&resourceVersion=101")
		p.CMs.Delete("ns", "x")
		p.CMs.Put("ns", "z", "1")
		st.Send("garbage\n")
		p.AwaitLog("relisted=true")

		behind.Await(2)
		proxytest.WantStrings(t, "watch from before the gap", behind.Strings(), "ADDED ns/y 103", "ADDED ns/z 105")
		if err := ahead.Ended(); err != nil || len(ahead.Events()) != 0 {
			t.Errorf("watch from within the gap, begun before it: got %s, %v", ahead.Strings(), err)
		}
		p.Passed(0)
		w := p.Watch(bubble.Since, 102)
		w.Want("ERROR 410")
		w.WantEnd()
		p.Watch(bubble.CMs + "?watch=1&resourceVersion=105")
		p.Passed(0)
	})
}
