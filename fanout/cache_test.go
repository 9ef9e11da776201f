package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// state returns the JSON of all objects of a snapshot, in order.
func state(s fanout.Snapshot) []string {
	var all []string
	s.All(func(o *framing.Object) bool {
		all = append(all, string(o.Bytes()))
		return true
	})
	return all
}

// A change that is not newer changes nothing and reaches nobody.
func TestApplyBackwards(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x"))
	rv := w.put(named("y"))
	_, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	f := func(typ string, o thing, at uint64, want error) {
		t.Helper()
		before, stats := state(w.cache.Snapshot()), w.cache.Stats()
		err := w.cache.Apply(event(typ, o.at(at)), time.Now())
		if !errors.Is(err, want) {
			t.Errorf("%s %s at %d: error %v, want %v", typ, o.key(), at, err, want)
		}
		if want != nil && (!slices.Equal(state(w.cache.Snapshot()), before) || w.cache.Stats() != stats) {
			t.Errorf("%s %s at %d changed the cache", typ, o.key(), at)
		}
	}
	f("MODIFIED", named("y"), rv, fanout.ErrBackwards) // repeated
	f("MODIFIED", named("x"), rv, fanout.ErrBackwards)
	f("MODIFIED", named("x"), rv-1, fanout.ErrBackwards)
	f("DELETED", named("x"), rv, fanout.ErrBackwards) // shares a revision, but not with a deletion
	w.cache.Advance(rv + 10)
	f("MODIFIED", named("x"), rv+10, fanout.ErrBackwards)
	f("MODIFIED", named("x"), rv+9, fanout.ErrBackwards)

	// One etcd revision may delete several objects: the expiry of a lease does.
	f("DELETED", named("x"), rv+11, nil)
	f("DELETED", named("x"), rv+11, fanout.ErrBackwards) // repeated
	f("ADDED", named("z"), rv+11, fanout.ErrBackwards)
	f("DELETED", named("y"), rv+11, nil)
	f("DELETED", named("unknown"), rv+12, nil)
	if got := w.cache.Progress(); got != rv+12 {
		t.Errorf("progress %d, want %d", got, rv+12)
	}
	x, y := named("x"), named("y")
	r.wantLines(t, line("DELETED", x.at(rv+11)), line("DELETED", y.at(rv+11)))
}

// The event type depends on whether the cache held the object, and not on what upstream calls the
// change.
func TestApplyTypes(t *testing.T) {
	w := newWorld(t, roomy)
	_, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	x := named("x")
	for i, typ := range []string{"MODIFIED", "ADDED"} {
		apply(t, w.cache, event(typ, x.at(uint64(101+i))))
	}
	r.wantLines(t, line("ADDED", x.at(101)), line("MODIFIED", x.at(102)))
}

// When upstream has gone back in time, every client's stream ends, and a new history begins.
func TestReset(t *testing.T) {
	w := newWorld(t, roomy)
	rv := w.put(named("x"))
	sub, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow, Bookmarks: true})
	posted := w.subscribe(everything(t), fanout.Request{Start: fanout.FromNow})
	const status = `{"kind":"Status","code":410}`
	y := named("y")
	w.cache.Reset([]*framing.Object{object(y.at(50))}, 60,
		fanout.Ending{Reason: fanout.Backwards, Last: framing.ErrorFrame(framing.JSON, []byte(status))})
	r.wantEnd(t, fanout.Backwards, true)
	r.wantLines(t, `{"type":"ERROR","object":`+status+"}\n")
	sub.End(fanout.Ending{Reason: fanout.Gone}) // too late

	// A client that had subscribed, but was not served yet, also gets an end.
	late := newRecorder()
	w.flusher.Start(posted, late)
	late.wantEnd(t, fanout.Backwards, true)
	late.wantLines(t, `{"type":"ERROR","object":`+status+"}\n")

	if got := w.cache.Progress(); got != 60 {
		t.Errorf("progress %d, want 60", got)
	}
	w.begins(everything(t), resume(59), fanout.ErrExpired)
	_, again := w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot})
	apply(t, w.cache, event("ADDED", (&thing{name: "z"}).at(61)))
	again.wantLines(t, line("ADDED", y.at(50)), line("ADDED", (&thing{name: "z"}).at(61)))
	// A resourceVersion in the future of the new history, even if it was in the past of the old
	// one, gets nothing until then.
	_, future := w.client(everything(t), resume(rv))
	apply(t, w.cache, event("ADDED", (&thing{name: "z2"}).at(rv)))
	apply(t, w.cache, event("ADDED", (&thing{name: "z3"}).at(rv+1)))
	future.wantLines(t, line("ADDED", (&thing{name: "z3"}).at(rv+1)))
}

// A client that is within a replay at a reset is told why, like the others.
func TestResetWithinReplay(t *testing.T) {
	for _, rv := range []uint64{50, 10_000} {
		w := newWorld(t, roomy)
		for i := range 3 * fanout.MaxBatchFrames {
			w.put(named(fmt.Sprint(i)))
		}
		last := framing.ErrorFrame(framing.JSON, []byte("{}"))
		sink := &eager{newRecorder(), 1, func() { w.cache.Reset(nil, rv, fanout.Ending{Reason: fanout.Backwards, Last: last}) }}
		w.flusher.Start(w.subscribe(everything(t), resume(100)), sink)
		sink.wantEnd(t, fanout.Backwards, true)
		if lines := sink.lines(t); lines[len(lines)-1] != `{"type":"ERROR","object":{}}`+"\n" {
			t.Errorf("reset to %d: the last event is %s", rv, lines[len(lines)-1])
		}
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x"))
	_, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	posted := w.subscribe(sel(t, "a", "", ""), fanout.Request{Start: fanout.FromSnapshot})
	waiting := make(chan error)
	go func() { waiting <- w.cache.WaitFor(context.Background(), 1e9) }()
	w.cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
	w.cache.Close(fanout.Ending{Reason: fanout.ShutDown}) // too late
	r.wantEnd(t, fanout.LaneClosed, true)
	late := newRecorder()
	w.flusher.Start(posted, late)
	late.wantEnd(t, fanout.LaneClosed, true)
	if err := <-waiting; err != fanout.ErrClosed {
		t.Errorf("WaitFor: %v, want %v", err, fanout.ErrClosed)
	}
	w.begins(everything(t), fanout.Request{}, fanout.ErrClosed)
	if err := w.cache.WaitFor(t.Context(), 1e9); err != fanout.ErrClosed {
		t.Errorf("WaitFor a closed cache: %v, want %v", err, fanout.ErrClosed)
	}
	if s := w.cache.Stats(); s.Subscriptions != 0 || s.Groups != 0 {
		t.Errorf("left over: %+v", s)
	}
}

func TestWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too late"))
		defer cancel()
		var reached atomic.Int32
		for _, rv := range []uint64{100, 101, 102, 104} {
			go func() {
				if err := w.cache.WaitFor(ctx, rv); err != nil || w.cache.Progress() < rv {
					t.Errorf("WaitFor(%d) at %d: %v", rv, w.cache.Progress(), err)
				}
				reached.Add(1)
			}()
		}
		want := func(n int32) {
			t.Helper()
			if synctest.Wait(); reached.Load() != n {
				t.Errorf("at %d: %d have waited, want %d", w.cache.Progress(), reached.Load(), n)
			}
		}
		want(1)
		w.put(named("x"))
		want(2)
		w.advance(2) // to 103
		want(3)
		w.relist(func(_ map[string]*thing, rv uint64) uint64 { return rv + 9 })
		want(4)
		if err := w.cache.WaitFor(ctx, 1e6); err == nil || err.Error() != "too late" {
			t.Errorf("got %v", err)
		}
	})
}

func TestAdvance(t *testing.T) {
	w := newWorld(t, roomy)
	epoch := w.cache.Epoch()
	w.cache.Advance(99)
	if got := w.cache.Progress(); got != 100 {
		t.Errorf("progress %d, want 100", got)
	}
	f := func(epoch, at, rv uint64, ok bool, progress uint64) {
		t.Helper()
		if got := w.cache.AdvanceFrom(epoch, at, rv); got != ok || w.cache.Progress() != progress {
			t.Errorf("AdvanceFrom(%d, %d, %d) = %v at %d, want %v at %d",
				epoch, at, rv, got, w.cache.Progress(), ok, progress)
		}
	}
	f(epoch, 101, 105, false, 100)
	f(epoch, 100, 105, true, 105)
	f(epoch, 100, 104, true, 105) // it has moved on meanwhile
	f(epoch-1, 100, 110, false, 105)
	w.rv = 105
	w.relist(func(_ map[string]*thing, rv uint64) uint64 { return rv + 1 })
	f(epoch, 105, 110, false, 106)
	f(epoch+1, 106, 110, true, 110)
}

func TestStats(t *testing.T) {
	w := newWorld(t, roomy)
	rng := rand.New(rand.NewPCG(1, 1))
	for w.began == 0 || w.gaps == nil || w.gaps[len(w.gaps)-1][0] < w.began { // until it was listed, after it has begun anew
		w.step(rng)
	}
	a := w.subscribe(sel(t, "a", "", ""), fanout.Request{})
	b := w.subscribe(sel(t, "a", "", ""), fanout.Request{})
	c := w.subscribe(sel(t, "b", "", ""), fanout.Request{})
	var bytes int64
	w.cache.Snapshot().All(func(o *framing.Object) bool { bytes += int64(o.Size()); return true })
	want := fanout.Stats{ResourceVersion: w.rv, Objects: len(w.things), Bytes: bytes, HistoryEvents: len(w.upstream(w.began, w.rv)),
		Oldest: w.began, Groups: 2, Subscriptions: 3}
	got := w.cache.Stats()
	want.HistoryBytes = got.HistoryBytes // TestHistoryModel computes it
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, s := range []*fanout.Subscription{a, b, c} {
		s.Cancel()
	}
	w.cache.OnAsk(func(f *fanout.Filter) { t.Errorf("%s is asked after all have left", f.Key()) })
	w.put(named("x"))
	if got := w.cache.Stats(); got.Groups != 0 || got.Subscriptions != 0 {
		t.Errorf("got %+v after all have left", got)
	}
}

// TestTold: what upstream says of how far it is counts, also if that is no news, and nothing older.
func TestTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fanout.NewCache(fanout.Limits{}, fanout.NewFlusher(1, 0, nil))
		if c.Told() != 0 {
			t.Errorf("told at %v before the first list", c.Told())
		}
		for _, tell := range []struct {
			rv   uint64
			tell func(rv uint64)
			news bool
		}{
			{5, func(rv uint64) { c.Reset(nil, rv, fanout.Ending{}) }, true},
			{7, c.Advance, true},
			{7, c.Advance, true},
			{6, c.Advance, false},
		} {
			before := c.Told()
			time.Sleep(time.Second)
			tell.tell(tell.rv)
			if now := fanout.MonotonicNow(); (c.Told() == now) != tell.news || !tell.news && c.Told() != before {
				t.Errorf("%d: told at %v, and it is %v", tell.rv, c.Told(), now)
			}
		}
	})
}
