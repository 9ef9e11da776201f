package fanout_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// stuck is a Sink whose client stops reading after so many bytes, until it reads again or leaves.
type stuck struct {
	recorder
	mu     sync.Mutex
	room   int // bytes that the socket still accepts
	rest   []byte
	drains int
	reads  chan error // results of Drain; never closed
	broken error      // the result of Write

	evicted []fanout.State // as it was told; read behind the end
}

func (s *stuck) Evicted(state fanout.State) { s.evicted = append(s.evicted, state) }

func newStuck(room int) *stuck {
	return &stuck{recorder: recorder{endc: make(chan struct{})}, room: room, reads: make(chan error, 1)}
}

func (s *stuck) Write(batch [][]byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return false, s.broken
	}
	if len(s.rest) > 0 {
		panic("Write before Drain has returned")
	}
	all := slices.Concat(batch...)
	n := min(len(all), s.room)
	s.room -= n
	s.rest = all[n:]
	_, _ = s.recorder.Write([][]byte{all[:n]})
	return len(s.rest) > 0, nil
}

func (s *stuck) Drain(done func(error)) { go func() { done(s.drain()) }() }

func (s *stuck) drain() error {
	s.mu.Lock()
	s.drains++
	s.mu.Unlock()
	if err := <-s.reads; err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.recorder.Write([][]byte{s.rest})
	s.rest = nil
	return nil
}

// readOn makes the client read what is left, and all that comes.
func (s *stuck) readOn() {
	s.mu.Lock()
	s.room = 1 << 30
	s.mu.Unlock()
	s.reads <- nil
}

func (s *stuck) End(reason fanout.Reason, complete bool) {
	s.recorder.End(reason, complete)
	s.answer(errors.New("ended")) // like a closed connection
}

// answer ends a Drain, if there is none with an answer yet.
func (s *stuck) answer(err error) {
	select {
	case s.reads <- err:
	default:
	}
}

// A watch ends after its timeoutSeconds, cleanly: only the end of the stream is written. One whose
// connection has reached its maximum age ends gracefully.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		for _, timeout := range []time.Duration{time.Nanosecond, time.Second, 5 * time.Second, 1800 * time.Second} {
			for reason, aging := range map[fanout.Reason]bool{fanout.TimedOut: false, fanout.Aged: true} {
				start, before := time.Now(), w.put(named("x"))
				_, r := w.client(everything(t), fanout.Request{Timeout: timeout, Aging: aging, Bookmarks: true})
				<-r.endc
				if got := time.Since(start); got < timeout || got > timeout+fanout.SweepEvery {
					t.Errorf("%s after %v, want %v", reason, got, timeout)
				}
				r.wantEnd(t, reason, true)
				r.wantLines(t, []string{bookmark(before, false)}[:map[bool]int{true: 1}[aging]]...)
			}
		}
	})
}

// The graceful end at a connection's maximum age waits for a client that does not read, but not for ever.
func TestTimeoutOfAged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		late, never := newStuck(10), newStuck(10)
		for _, s := range []*stuck{late, never} {
			w.flusher.Start(w.subscribe(everything(t), fanout.Request{Timeout: time.Hour, Aging: true}), s)
		}
		w.put(named("x"))
		time.Sleep(time.Hour + fanout.MostStalled - time.Second)
		if late.ended() || never.ended() {
			t.Error("did not wait")
		}
		late.readOn()
		late.wantEnd(t, fanout.Aged, true)
		time.Sleep(time.Second + fanout.LastBytesTimeout + 4*fanout.SweepEvery)
		if !never.ended() {
			t.Fatal("has not ended")
		}
		never.wantEnd(t, fanout.Aged, false)
	})
}

// Only changes count, and not what a subscription begins with.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		quiet := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := w.flusher.Quiet(); got != want {
				t.Errorf("%s: quiet %v, want %v", what, got, want)
			}
		}
		w.put(thing{namespace: "ns", name: "before"})
		w.client(everything(t), fanout.Request{Timeout: time.Hour, Start: fanout.FromSnapshot})
		quiet("initial event", true)
		w.put(thing{namespace: "ns", name: "x"})
		quiet("change", false)
		time.Sleep(fanout.QuietFor)
		quiet("within a second", false)
		time.Sleep(time.Nanosecond)
		quiet("after a second", true)
	})
}

// With an interval, an event that comes alone is written at once, and events that follow closely
// are written together.
func TestFlushInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 100 * time.Millisecond
		w := newWorldEvery(t, roomy, interval)
		_, r := w.client(everything(t), fanout.Request{Timeout: time.Hour})
		_, idle := w.client(sel(t, "other", "", ""), fanout.Request{Timeout: time.Hour})
		written := func(want int) {
			t.Helper()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.at) != want {
				t.Errorf("%d writes, want %d", len(r.at), want)
			}
		}
		put := func(namespace, name string) { w.put(thing{namespace: namespace, name: name}) }
		time.Sleep(time.Second)
		put("ns", "alone")
		written(1)
		for i := range 5 {
			time.Sleep(10 * time.Millisecond)
			put("ns", fmt.Sprint(i))
		}
		written(1)
		time.Sleep(interval - 51*time.Millisecond)
		written(1)
		time.Sleep(time.Millisecond)
		written(2)
		put("ns", "next")
		// This does not wait.
		_, late := w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot, Timeout: time.Hour})
		synctest.Wait()
		if got := len(late.lines(t)); got != 7 {
			t.Errorf("who has just come got %d objects, want 7", got)
		}
		written(2)
		time.Sleep(interval)
		written(3)
		if got := len(r.lines(t)); got != 7 {
			t.Errorf("got %d events, want 7", got)
		}
		idle.wantLines(t)
	})
}

// Events that share a resourceVersion, such as the deletions of a relist, are all replayed, in as many
// batches as they take.
func TestReplayEqualVersions(t *testing.T) {
	w := newWorld(t, roomy)
	for i := range 3 * fanout.MaxBatchFrames {
		w.put(named(fmt.Sprint(i)))
	}
	before := w.rv
	w.relist(func(things map[string]*thing, rv uint64) uint64 {
		clear(things)
		return rv + 1
	})
	w.put(named("x"))
	_, r := w.client(everything(t), resume(before))
	_, earlier := w.client(everything(t), resume(before-100))
	r.wantLines(t, w.since(everything(t), before)...)
	earlier.wantLines(t, w.since(everything(t), before-100)...)
	for _, r := range []*recorder{r, earlier} {
		if r.most[1] > fanout.MaxBatchBytes+1000 {
			t.Errorf("a write of %d slices and %d bytes", r.most[0], r.most[1])
		}
	}
}

// A broken connection ends its subscription at once, whether Write, Drain or a call of End reports
// it.
func TestBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		inWrite, inDrain, left, leftBlocked := newStuck(0), newStuck(0), newStuck(1<<20), newStuck(0)
		inWrite.broken = errors.New("broken pipe")
		var subs []*fanout.Subscription
		for _, s := range []*stuck{inWrite, inDrain, left, leftBlocked} {
			subs = append(subs, w.subscribe(everything(t), fanout.Request{}))
			w.flusher.Start(subs[len(subs)-1], s)
		}
		_, r := w.client(everything(t), fanout.Request{})
		w.put(named("x"))
		synctest.Wait()
		inWrite.wantEnd(t, fanout.Gone, false)
		inDrain.reads <- errors.New("reset by peer")
		inDrain.wantEnd(t, fanout.Gone, false)
		subs[2].End(fanout.Ending{Reason: fanout.Gone})
		left.wantEnd(t, fanout.Gone, true)
		subs[3].End(fanout.Ending{Reason: fanout.Gone})
		leftBlocked.reads <- errors.New("reset by peer")
		leftBlocked.wantEnd(t, fanout.Gone, false)
		w.put(named("x"))
		r.wantLines(t, w.since(everything(t), 100)...)
		if s := w.cache.Stats(); s.Subscriptions != 1 {
			t.Errorf("%d subscriptions left, want 1", s.Subscriptions)
		}
	})
}

// The last bytes are written before the end, after the current write. Frames that no write has
// begun are not sent.
func TestEnd(t *testing.T) {
	const status = `{"kind":"Status","code":410}`
	last := `{"type":"ERROR","object":` + status + "}\n"
	ending := fanout.Ending{Reason: fanout.Revoked, Last: framing.ErrorFrame(framing.JSON, []byte(status))}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		sub, r := w.client(everything(t), fanout.Request{})
		x := named("x")
		// These three block within the event, within the event for good, and within the last bytes.
		slow, stalled, inLast := newStuck(10), newStuck(10), newStuck(len(line("ADDED", x.at(101)))+20)
		slowSub, stalledSub, inLastSub := w.subscribe(everything(t), fanout.Request{}), w.subscribe(everything(t), fanout.Request{}), w.subscribe(everything(t), fanout.Request{})
		w.flusher.Start(slowSub, slow)
		w.flusher.Start(stalledSub, stalled)
		w.flusher.Start(inLastSub, inLast)
		rv := w.put(named("x"))
		synctest.Wait()
		for _, s := range []*fanout.Subscription{sub, slowSub, stalledSub, inLastSub} {
			s.End(ending)
			s.End(fanout.Ending{Reason: fanout.Gone}) // the first call decides
		}
		w.put(named("y"))
		start := time.Now()
		r.wantEnd(t, fanout.Revoked, true)
		r.wantLines(t, line("ADDED", x.at(rv)), last)
		time.Sleep(fanout.LastBytesTimeout / 2)
		if slow.ended() {
			t.Error("ended before its last bytes were written")
		}
		slow.readOn()
		slow.wantEnd(t, fanout.Revoked, true)
		slow.wantLines(t, line("ADDED", x.at(rv)), last)
		inLast.reads <- nil
		inLast.wantEnd(t, fanout.Revoked, true)
		inLast.wantLines(t, line("ADDED", x.at(rv)), last)

		stalled.wantEnd(t, fanout.Revoked, false)
		if d := time.Since(start); d < fanout.LastBytesTimeout || d > fanout.LastBytesTimeout+3*fanout.SweepEvery {
			t.Errorf("stalled for %v, want %v", d, fanout.LastBytesTimeout)
		}
	})
}

// A sink is told once of the end, whatever ends the subscription and however many calls do so at
// once.
func TestEndRaces(t *testing.T) {
	for round := range 30 {
		f := newFlusher(3)
		w := bareWorld(t, roomy, f, 100)
		c := w.cache
		cancel, stopped := begin(f)
		var sinks []*stuck
		var wg sync.WaitGroup
		for i := range 60 {
			sink := newStuck([]int{1 << 30, i * 10}[i%2])
			sinks = append(sinks, sink)
			sub := w.subscribe(sel(t, []string{"", "a", "b"}[i%3], "", ""), fanout.Request{})
			wg.Go(func() {
				f.Start(sub, sink)
				for range 3 {
					wg.Go(func() { sub.End(fanout.Ending{Reason: fanout.Gone}) })
				}
				if i%3 == 0 {
					sink.answer(nil)
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				w.put(named("x"))
			}
		})
		if round%3 != 0 {
			wg.Go(func() {
				c.Close(fanout.Ending{Reason: fanout.LaneClosed, Last: framing.ErrorFrame(framing.JSON, []byte("{}"))})
			})
		}
		if round%3 != 1 {
			wg.Go(cancel)
		}
		wg.Wait()
		for i, sink := range sinks {
			if round%3 == 1 { // nobody stops the Flusher, so the sinks must drain or break
				sink.answer(errors.New("reset by peer"))
			}
			steady.Receive(t, fmt.Sprintf("end for client %d of round %d", i, round), sink.endc)
		}
		cancel()
		<-stopped
		if s := c.Stats(); s.Subscriptions != 0 || s.Groups != 0 {
			t.Fatalf("round %d: left over: %+v", round, s)
		}
	}
}

// A sink is told once of the end too if its subscription starts, is ended, and loses its Flusher at
// the same instant.
func TestStartRaces(t *testing.T) {
	for round := range 10_000 {
		f := newFlusher(1)
		w := bareWorld(t, roomy, f, 100)
		cancel, stopped := begin(f)
		var wg sync.WaitGroup
		var sinks [8]onceEnded
		for i := range sinks {
			sub := w.subscribe(everything(t), fanout.Request{})
			wg.Go(func() { f.Start(sub, &sinks[i]) })
			wg.Go(func() { sub.End(fanout.Ending{Reason: fanout.Gone}) })
		}
		wg.Go(cancel)
		wg.Wait()
		<-stopped
		for i := range sinks {
			if n := sinks[i].ends.Load(); n != 1 {
				t.Errorf("round %d: sink %d was told %d times", round, i, n)
			}
		}
		if s := w.cache.Stats(); s.Subscriptions != 0 || s.Groups != 0 {
			t.Fatalf("round %d: left over: %+v", round, s)
		}
	}
}

// onceEnded is a sink that counts its ends.
type onceEnded struct{ ends atomic.Int32 }

func (s *onceEnded) Write([][]byte) (blocked bool, err error) { return false, nil }
func (s *onceEnded) Drain(func(error))                        { panic("Drain of a sink that never blocks") }
func (s *onceEnded) End(fanout.Reason, bool)                  { s.ends.Add(1) }

// A Flusher that stops ends all remaining subscriptions, including those that it has not taken up,
// and those that are started later.
func TestFlusherStop(t *testing.T) {
	f := newFlusher(2)
	w := bareWorld(t, roomy, f, 100)
	c := w.cache
	before, served, parked, after := newRecorder(), newRecorder(), newStuck(5), newRecorder()
	late := w.subscribe(everything(t), fanout.Request{})
	cancel, stopped := begin(f)
	f.Start(w.subscribe(everything(t), fanout.Request{}), served)
	f.Start(w.subscribe(everything(t), fanout.Request{}), parked)
	w.put(named("x"))
	served.wantLines(t, w.since(everything(t), 100)...)
	steady.Until(t, "event for the parked client", func() error {
		if n := parked.wireLen(); n < 5 {
			return fmt.Errorf("%d bytes", n)
		}
		return nil
	})
	cancel()
	f.Start(w.subscribe(everything(t), fanout.Request{}), before) // before or after the stop
	<-stopped
	f.Start(late, after)
	for _, r := range []*recorder{before, served, &parked.recorder, after} {
		r.wantEnd(t, fanout.ShutDown, false)
	}
	w.put(named("x"))
	late.End(fanout.Ending{Reason: fanout.Gone})
	c.Close(fanout.Ending{Reason: fanout.LaneClosed})
	if s := c.Stats(); s.Subscriptions != 0 || s.Groups != 0 {
		t.Errorf("left over: %+v", s)
	}
}

func (r *recorder) wireLen() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wire.Len()
}

// A writer that has nothing else at hand sends a change to a few clients before ApplyLast returns. More clients
// get it from their shard, and each gets it once.
func TestApplyLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, roomy, newFlusher(1))
		var all []*recorder
		for n := 1; n <= 6; n++ {
			_, r := w.client(everything(t), fanout.Request{})
			all = append(all, r)
			synctest.Wait()
			w.rv += 1 - w.rv%2
			before := len(all[0].lines(t))
			w.put(thing{name: "x"})
			if got := len(all[0].lines(t)) - before; n <= 4 && got != 1 {
				t.Errorf("of %d clients, one has %d more events at once, want 1", n, got)
			}
			synctest.Wait()
			for i, r := range all {
				if got := len(r.lines(t)); got != n-i {
					t.Errorf("client %d of %d has %d events, want %d", i, n, got, n-i)
				}
			}
		}
	})
}
