package fanout_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

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
