package fanout_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// A bookmark form is not replaced by one with less, but is replaced by a newer server's form. The end
// bookmark is not known from a plain one.
func TestSetBookmarkForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlusher(1)
		run(t, f)
		w := bareWorld(t, roomy, f, 100)
		newer := func(rv uint64) string { return strings.Replace(bookmark(rv, true), `"spec"`, `"new"`, 1) }
		for _, c := range []struct{ form, want string }{
			{"", ""}, {bookmark(1, false), ""}, {bookmark(1, true), bookmark(100, true)}, {bookmark(2, false), bookmark(100, true)},
			{newer(3), newer(100)},
		} {
			if c.form != "" {
				ev, err := framing.NewScanner(framing.JSON, nil).Event([]byte(c.form))
				if err != nil {
					t.Fatal(err)
				}
				w.cache.SetBookmarkForm(ev.Form)
			}
			_, r := w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot, Bookmarks: true, EndBookmark: true})
			synctest.Wait()
			if got := strings.Join(r.lines(t), ""); got != c.want || w.cache.HasBookmarks() != (c.want != "") {
				t.Errorf("with the form of %q: sent %q, want %q", c.form, got, c.want)
			}
		}
	})
}

// Bookmarks are due each minute, or as the limits say, and two seconds before the end. A watch of
// two seconds or less gets none (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go,
// nextBookmarkTime).
func TestBookmarkSchedule(t *testing.T) {
	limits := roomy
	f := func(timeout time.Duration, want ...time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, limits)
			start := time.Now()
			_, b := w.client(sel(t, "none", "", ""), fanout.Request{Bookmarks: true, Timeout: timeout})
			for !b.ended() {
				time.Sleep(10 * time.Millisecond)
				w.advance(1)
			}
			if len(b.at) != len(want) {
				t.Errorf("timeout %v: %d bookmarks, want %d: %v", timeout, len(b.at), len(want), b.at)
				return
			}
			for i, at := range b.at {
				if d := at.Sub(start) - want[i]; d < 0 || d > 2*fanout.SweepEvery {
					t.Errorf("timeout %v: bookmark %d after %v, want %v", timeout, i, at.Sub(start), want[i])
				}
			}
		})
	}
	f(1 * time.Second)
	f(2 * time.Second)
	f(5*time.Second, 3*time.Second)
	f(61*time.Second, 59*time.Second)
	f(70*time.Second, 60*time.Second, 68*time.Second)
	f(185*time.Second, 60*time.Second, 120*time.Second, 180*time.Second, 183*time.Second)
	limits.BookmarkEvery = 20 * time.Second
	f(2 * time.Second)
	f(21*time.Second, 19*time.Second)
	f(45*time.Second, 20*time.Second, 40*time.Second, 43*time.Second)
}

// A watch gets no bookmark while it is still where it began. Once there is progress, the overdue
// bookmark is sent soon.
func TestBookmarkTellsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		_, idle := w.client(everything(t), fanout.Request{Bookmarks: true})
		_, unasked := w.client(everything(t), fanout.Request{})
		_, other := w.client(sel(t, "b", "", ""), fanout.Request{Bookmarks: true})
		_, initial := w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot, Bookmarks: true})
		time.Sleep(10 * time.Minute)
		for _, r := range []*recorder{idle, unasked, other, initial} {
			r.wantLines(t)
		}
		rv := w.put(named("x"))
		x := named("x")
		time.Sleep(time.Second)
		idle.wantLines(t, line("ADDED", x.at(rv)), bookmark(rv, false))
		unasked.wantLines(t, line("ADDED", x.at(rv)))
		other.wantLines(t, bookmark(rv, false))
		at := w.advance(5)
		time.Sleep(time.Second)
		idle.wantLines(t, line("ADDED", x.at(rv)), bookmark(rv, false)) // not due again
		other.wantLines(t, bookmark(rv, false))
		time.Sleep(time.Minute)
		idle.wantLines(t, line("ADDED", x.at(rv)), bookmark(rv, false), bookmark(at, false))
		unasked.wantLines(t, line("ADDED", x.at(rv)))
		other.wantLines(t, bookmark(rv, false), bookmark(at, false))
	})
}

// A due bookmark waits until everything before it has been sent, however many batches that takes.
func TestBookmarkWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		slow := newStuck(10)
		w.flusher.Start(w.subscribe(everything(t), fanout.Request{Bookmarks: true}), slow)
		for i := range 3 * fanout.MaxBatchFrames {
			w.put(named(fmt.Sprint(i)))
			if i == 0 {
				synctest.Wait() // it is blocked from here on
			}
		}
		w.advance(1)
		time.Sleep(fanout.BookmarkEvery)
		slow.readOn()
		synctest.Wait()
		slow.wantLines(t, append(w.since(everything(t), 100), bookmark(w.rv, false))...)
	})
}

// A cache's progress says nothing of a list that is no longer appended to. So no bookmark has it, due or the last
// before a graceful end, although the shard has not come to the end of the list's subscriptions yet.
func TestBookmarkAfterReset(t *testing.T) {
	x := named("x")
	for name, ends := range map[string]func(w *world){
		"reset": func(w *world) {
			w.cache.Reset([]*framing.Object{object(x.at(105))}, 110, fanout.Ending{Reason: fanout.Expired})
		},
		"close": func(w *world) {
			w.cache.Close(fanout.Ending{Reason: fanout.Expired})
			apply(t, w.cache, event("ADDED", x.at(110)))
		},
	} {
		for _, graceful := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, graceful=%v", name, graceful), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorldOf(t, roomy, newFlusher(1))
					once := sync.OnceFunc(func() { ends(w) })
					var sinks []*eager
					var subs []*fanout.Subscription
					for range 2 {
						s := &eager{newRecorder(), 1, once}
						sub := w.subscribe(everything(t), fanout.Request{Bookmarks: true})
						w.flusher.Start(sub, s)
						sinks, subs = append(sinks, s), append(subs, sub)
					}
					synctest.Wait()
					w.cache.Advance(101)
					if graceful {
						for _, sub := range subs {
							sub.End(fanout.Ending{Reason: fanout.ShutDown, Graceful: true})
						}
					}
					time.Sleep(2 * fanout.BookmarkEvery)
					for _, s := range sinks {
						if got := strings.Join(s.lines(t), ""); !s.ended() || got != "" && got != bookmark(101, false) {
							t.Errorf("ended %v after %q, and the cache went on to 110 without it", s.ended(), got)
						}
					}
				})
			})
		}
	}
}
