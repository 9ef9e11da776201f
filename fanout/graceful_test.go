package fanout_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// A graceful ending comes after all events, and after a bookmark; a client that asks for no
// bookmarks gets none. A client that resumes from the bookmark misses nothing and is sent nothing
// twice.
func TestGracefulEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		for i := range 20 {
			w.put(named(fmt.Sprint("old-", i)))
		}
		began := w.rv
		s := sel(t, "", "", "metadata.name=x")
		type client struct {
			sub *fanout.Subscription
			*recorder
		}
		clients := make(map[fanout.Request]client)
		for _, gzip := range []bool{false, true} {
			for _, bookmarks := range []bool{false, true} {
				for _, start := range []fanout.Start{fanout.FromNow, fanout.FromSnapshot, fanout.FromVersion} {
					r := fanout.Request{Start: start, ResourceVersion: began - 10, Gzip: gzip, Bookmarks: bookmarks}
					sub, rec := w.client(s, r)
					clients[r] = client{sub, rec}
				}
			}
		}
		synctest.Wait()
		w.put(named("x"))
		w.put(named("y")) // nobody selects this one
		for _, c := range clients {
			c.sub.End(fanout.Ending{Reason: fanout.ShutDown, Graceful: true})
		}
		synctest.Wait()
		progress := w.rv
		w.put(named("x"))
		for r, c := range clients {
			c.wantEnd(t, fanout.ShutDown, true)
			want := w.since(s, began)[:1]
			if r.Bookmarks {
				want = append(want, bookmark(progress, false))
			}
			c.wantLines(t, want...)
		}
		_, again := w.client(s, resume(progress))
		again.wantLines(t, w.since(s, progress)...)
	})
}

// A client without new changes gets a bookmark for where it stands. A client that asked for the
// future does not.
func TestGracefulEndingOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		rv := w.put(named("x"))
		f := func(from uint64, want ...string) {
			t.Helper()
			sub, r := w.client(everything(t),
				fanout.Request{Start: fanout.FromVersion, ResourceVersion: from, Bookmarks: true})
			sub.End(fanout.Ending{Reason: fanout.ShutDown, Graceful: true})
			r.wantEnd(t, fanout.ShutDown, true)
			r.wantLines(t, want...)
		}
		f(rv, bookmark(rv, false))
		f(rv + 1)
	})
}

// A graceful ending waits for a client that reads slowly. Any other ending does not.
func TestGracefulEndingOfSlowClient(t *testing.T) {
	f := func(wantReason fanout.Reason, complete bool, then func(*fanout.Subscription, *stuck)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, roomy)
			slow := newStuck(10)
			sub := w.subscribe(everything(t), fanout.Request{Bookmarks: true})
			w.flusher.Start(sub, slow)
			w.put(named("a"))
			synctest.Wait()
			w.put(named("b"))
			sub.End(fanout.Ending{Reason: fanout.ShutDown, Graceful: true})
			time.Sleep(time.Minute)
			if slow.ended() {
				t.Fatal("ended, although the client has not read everything")
			}
			then(sub, slow)
			slow.wantEnd(t, wantReason, complete)
			if complete {
				slow.wantLines(t, append(w.since(everything(t), 100), bookmark(w.rv, false))...)
			}
		})
	}
	f(fanout.ShutDown, true, func(_ *fanout.Subscription, s *stuck) {
		s.readOn()
	})
	f(fanout.Revoked, false,
		func(sub *fanout.Subscription, _ *stuck) { sub.End(fanout.Ending{Reason: fanout.Revoked}) })
}

// eager is a recorder whose client causes as many changes as it is sent, up to a bound.
type eager struct {
	*recorder
	left  int
	cause func()
}

func (e *eager) Write(batch [][]byte) (blocked bool, err error) {
	for range min(len(batch), e.left) {
		e.left--
		e.cause()
	}
	return e.recorder.Write(batch)
}

// A graceful ending comes although changes come as fast as the client takes them. They are after
// its bookmark.
func TestGracefulEndingWhileWriting(t *testing.T) {
	long := strings.Repeat("x", 10<<10) // of which a batch has few
	for _, r := range []fanout.Request{{}, {Bookmarks: true}, {Bookmarks: true, Gzip: true}} {
		w := newWorld(t, roomy)
		began := w.rv
		sub := w.subscribe(everything(t), r)
		sink := &eager{newRecorder(), 1000, func() { w.put(named("x", "l", long)) }}
		sink.gzip = r.Gzip
		for range 40 {
			sink.cause()
		}
		rv := w.rv
		sub.End(fanout.Ending{Reason: fanout.ShutDown, Graceful: true})
		w.flusher.Start(sub, sink)
		sink.wantEnd(t, fanout.ShutDown, true)
		want := w.since(everything(t), began)[:40]
		if r.Bookmarks {
			want = append(want, bookmark(rv, false))
		}
		sink.wantLines(t, want...)
	}
}
