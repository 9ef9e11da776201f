package fanout_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// inspect returns the state of one subscription.
func (w *world) inspect(s *fanout.Subscription) fanout.State {
	return w.flusher.Inspect([]*fanout.Subscription{s}, time.Second)[0]
}

// Inspect returns what a subscription was sent, what waits for it and since when, in each of its
// phases.
func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		first := w.put(thing{namespace: "a", name: "x"})
		began := time.Now()

		sub := w.subscribe(sel(t, "a", "", ""), fanout.Request{Start: fanout.FromSnapshot})
		if got := w.inspect(sub); got.Phase != fanout.Unserved {
			t.Errorf("before Start: %+v", got)
		}
		sink := newStuck(0)
		w.flusher.Start(sub, sink)
		synctest.Wait()
		parked := w.inspect(sub)
		if parked.Phase != fanout.Live || !parked.ParkedSince.Equal(began) || parked.Parks != 1 || parked.Events != 1 ||
			parked.Bytes == 0 ||
			parked.LagEvents != 0 || !parked.Oldest.IsZero() || parked.ResourceVersion != first {
			t.Errorf("parked with the one initial event: %+v", parked)
		}

		time.Sleep(time.Second)
		came := time.Now()
		for i := range 3 {
			w.put(thing{namespace: "a", name: "x", data: fmt.Sprint(i)})
			w.put(thing{namespace: "b", name: "x", data: fmt.Sprint(i)})
			time.Sleep(time.Second)
		}
		behind := w.inspect(sub)
		if behind.LagEvents != 3 || behind.LagBytes < 3*uint64(len(line("MODIFIED", &thing{}))) ||
			!behind.Oldest.Equal(came) ||
			!behind.Selected.Equal(came.Add(2*time.Second)) || behind.Events != 1 {
			t.Errorf("3 events behind, the oldest of %s: %+v", came, behind)
		}

		sink.readOn()
		synctest.Wait()
		live := w.inspect(sub)
		if live.Phase != fanout.Live || !live.ParkedSince.IsZero() || live.Parks != 1 || live.Events != 4 ||
			live.Bytes != uint64(sink.wireLen()) ||
			live.LagEvents != 0 || live.ResourceVersion != first+5 {
			t.Errorf("drained, after %d bytes: %+v", sink.wireLen(), live)
		}
		sub.End(fanout.Ending{Reason: fanout.Gone})
		synctest.Wait()
		if got := w.inspect(sub); got.Phase != fanout.Unserved {
			t.Errorf("after the end: %+v", got)
		}
	})
}

// The phases of initial events, of a replay, and of a subscription whose last bytes can't be
// written.
func TestInspectPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		before := w.rv
		for i := range 2 * fanout.MaxBatchFrames {
			w.put(thing{namespace: "a", name: fmt.Sprintf("x%04d", i)})
		}
		for _, c := range []struct {
			name    string
			request fanout.Request
			want    fanout.Phase
		}{
			{"initial events", fanout.Request{Start: fanout.FromSnapshot}, fanout.InitialEvents},
			{"replay", resume(before), fanout.Replaying},
		} {
			sub, sink := w.subscribe(everything(t), c.request), newStuck(0)
			w.flusher.Start(sub, sink)
			synctest.Wait()
			if got := w.inspect(sub); got.Phase != c.want || got.Parks != 1 || got.Events == 0 {
				t.Errorf("%s: %+v", c.name, got)
			}
			sub.End(fanout.Ending{Reason: fanout.Revoked})
			synctest.Wait()
			if got := w.inspect(sub); got.Phase != fanout.Stopping {
				t.Errorf("%s, ending: %+v", c.name, got)
			}
		}
	})
}

// latch is a Sink whose Write does not return until it is released. No real Sink may do that: it
// stands for a shard without CPU.
type latch struct {
	*recorder
	letGo chan struct{}
}

func (l latch) Write(batch [][]byte) (bool, error) {
	<-l.letGo
	return l.recorder.Write(batch)
}

// Inspect does not wait longer than its patience for a shard that is busy. The late answer is
// dropped.
func TestInspectPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		sub, sink := w.subscribe(everything(t), fanout.Request{}), latch{newRecorder(), make(chan struct{})}
		w.flusher.Start(sub, sink)
		w.put(thing{namespace: "a", name: "x"})
		synctest.Wait()
		began := time.Now()
		got := w.inspect(sub)
		if took := time.Since(began); got.Phase != fanout.Unknown || got.Waited != time.Second || took != time.Second {
			t.Errorf("after %s: %+v", took, got)
		}
		close(sink.letGo)
		synctest.Wait()
		if got := w.inspect(sub); got.Phase != fanout.Live || got.Waited != 0 || got.Events != 1 {
			t.Errorf("afterwards: %+v", got)
		}
	})
}

// A shard goes back to its deliveries after a few hundred inspections, however many there are.
func TestInspectTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flusher := newFlusher(1) // it does not run
		w := bareWorld(t, roomy, flusher, 100)
		subs := make([]*fanout.Subscription, 10*fanout.InspectAtOnce)
		for i := range subs {
			subs[i] = w.subscribe(everything(t), fanout.Request{})
			flusher.Start(subs[i], &counter{})
		}
		flusher.Adopt()
		done := make(chan []fanout.State, 1)
		go func() { done <- flusher.Inspect(subs, time.Minute) }()
		for turn := range 10 {
			synctest.Wait()
			if n := flusher.Answer(); n != 1 {
				t.Fatalf("turn %d: %d questions, want 1", turn, n)
			}
		}
		for i, st := range <-done {
			if st.Phase != fanout.Live {
				t.Fatalf("subscription %d: %+v", i, st)
			}
		}
	})
}
