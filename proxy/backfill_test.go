package proxy_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

const since = cmsPath + "?watch=1&allowWatchBookmarks=true&resourceVersion=%d"

// older makes a history up to resourceVersion 106, and then starts the lane.
func older(f *fan) {
	f.cms.Put("ns", "a", "1")             // 101
	f.cms.Put("ns", "b", "1", "app", "x") // 102
	f.cms.Put("ns", "a", "2", "app", "x") // 103
	f.cms.Put("ns", "b", "2")             // 104
	f.cms.Delete("ns", "b")               // 105
	f.cms.Put("other", "c", "1")          // 106
	f.watch(anyState).Await(3)
}

// Clients that resume from before the lane share replays.
func TestBackfill(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	older(f)
	f.up.SetBookmarkAfter(-1) // the history's end is known by an event behind it
	rv := f.cms.Put("ns", "z", "1")
	var watches []<-chan *proxytest.Watcher
	for i := range 20 {
		watches = append(watches, f.later(fmt.Sprintf(since, 101+i%3)))
	}
	all := []string{"ADDED ns/b 102", "MODIFIED ns/a 103", "MODIFIED ns/b 104", "DELETED ns/b 105", "ADDED other/c 106",
		"ADDED ns/z 107"}
	for i, c := range watches {
		wantStrings(t, fmt.Sprintf("watch from %d", 101+i%3), proxytest.Strings(f.awaitOpen(c).AwaitVersion(rv)),
			all[i%3:]...)
	}
	if n := f.up.Count(proxytest.Short); n > 4 {
		t.Errorf("%d replays for 20 watches", n)
	}
	// A replay is also filtered by namespace and by name.
	wantStrings(t, "one namespace",
		proxytest.Strings(f.watch("/api/v1/namespaces/other/configmaps?watch=1&resourceVersion=101").Await(1)),
		"ADDED other/c 106")
	wantStrings(t, "one name",
		proxytest.Strings(f.watch(cmsPath+"?watch=1&resourceVersion=101&fieldSelector=metadata.name%%3Db").Await(3)),
		"ADDED ns/b 102", "MODIFIED ns/b 104", "DELETED ns/b 105")
	f.passed(0)
}

// A quiet collection's replay is complete at its bookmark.
func TestBackfillQuiet(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	older(f)
	f.up.Bump(1)
	w := f.watch(since, 104)
	wantStrings(t, "watch", proxytest.Strings(w.Await(2)), "DELETED ns/b 105", "ADDED other/c 106")
	f.passed(0)
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFan(t, proxytest.NewServer(t))
			for i := range c.objects {
				f.cms.Put("ns", fmt.Sprintf("o%04d", i), "1", "app", "x")
			}
			from := f.up.RV()
			var want []string
			for i := range c.changed { // kube-apiserver says DELETED to a client with the selector
				rv := f.cms.Put("ns", fmt.Sprintf("o%04d", i), "2")
				want = append(want, fmt.Sprintf("DELETED ns/o%04d %d", i, rv))
			}
			f.watch(anyState).Await(c.objects)
			f.up.Bump(1)
			w := f.watch(since+"&labelSelector=app", from)
			wantStrings(t, "watch", proxytest.Strings(w.Await(c.changed)), want...)
			byName, lists := 0, 0
			for _, r := range f.up.All() {
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
			f.passed(0)
		})
	}
}

// Upstream may not have those versions any more. Then the watch passes through.
func TestBackfillUndecidable(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	older(f)
	f.cms.Put("ns", "z", "1")
	f.up.On(proxytest.Form, 1, func(c *proxytest.Call) { c.Fail(http.StatusGone, "Expired", "compacted", 0) })
	f.watch(since+"&labelSelector=app", 102).Await(1) // it is not known whether a and b had the label at 102
	f.passed(1)

	f = startFan(t, proxytest.NewServer(t))
	older(f)
	f.cms.Put("ns", "z", "1")
	w := f.watch(since+"&labelSelector=app", 100) // all of their versions are in the replay
	wantStrings(t, "watch", proxytest.Strings(w.Await(3)), "ADDED ns/b 102", "ADDED ns/a 103", "DELETED ns/b 104")
	f.passed(0)
}

// If upstream has no history either, the client gets upstream's own 410.
func TestBackfillTooOld(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "q", "1")
	f.up.Bump(50)
	f.cms.Compact()
	f.watch(anyState).Await(2)
	for i := range 3 {
		w := f.watch(since, 120-i)
		if got := w.Await(1)[0]; got.Code != http.StatusGone || w.Ended() != nil {
			t.Errorf("got %s", got)
		}
		f.passed(i + 1)
	}
	if n := f.up.Count(proxytest.Short); n != 1 {
		t.Errorf("%d replays, want one that tells how far back there is history", n)
	}
}

// If a replay fails, the watch passes through.
func TestBackfillFails(t *testing.T) {
	for name, answer := range map[string]func(*proxytest.Call){
		"refused": func(c *proxytest.Call) { c.Fail(500, "InternalError", "no", 0) },
		"ends":    func(c *proxytest.Call) { c.Write(proxytest.ConfigMaps.Event("MODIFIED", "ns", "b", 104)) },
		"breaks": func(c *proxytest.Call) {
			c.Write(proxytest.ConfigMaps.Event("MODIFIED", "ns", "b", 104))
			c.Abort()
		},
		"garbage": func(c *proxytest.Call) { c.Write("garbage\n") },
		"hangs":   (*proxytest.Call).Hang,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFan(t, proxytest.NewServer(t), impatient)
			older(f)
			f.up.Bump(1)
			f.up.On(proxytest.Short, 1, answer)
			want := []string{"MODIFIED ns/b 104", "DELETED ns/b 105", "ADDED other/c 106"}
			wantStrings(t, "watch", proxytest.Strings(f.watch(since, 103).Await(3)), want...)
			f.passed(1)
			wantStrings(t, "the next watch", proxytest.Strings(f.watch(since, 103).Await(3)), want...)
			f.passed(1)
		})
	}
}
