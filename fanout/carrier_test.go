package fanout_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/fanout"
)

// carried is a Sink with a carrier. The carrier counts the writes of its sinks up to each flush.
type carried struct {
	*recorder
	of *connection
}

// connection is the carrier of several sinks.
type connection struct {
	carrier *fanout.Carrier

	mu      sync.Mutex
	written int         // since the last flush
	flushes []int       // what written was
	noted   func(n int) // called with each change of written; nil is nothing
}

func newConnection() *connection {
	c := &connection{}
	c.carrier = fanout.NewCarrier(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flushes = append(c.flushes, c.written)
		c.noteLocked(-c.written)
	})
	return c
}

func (c *connection) noteLocked(n int) {
	c.written += n
	if c.noted != nil {
		c.noted(n)
	}
}

func (s *carried) Carrier() *fanout.Carrier { return s.of.carrier }

func (s *carried) Write(batch [][]byte) (bool, error) {
	s.of.mu.Lock()
	s.of.noteLocked(1)
	s.of.mu.Unlock()
	return s.recorder.Write(batch)
}

// The sinks of one connection are served together: an event is written to all of them, and then the
// connection is flushed once. Nothing stays unflushed.
func TestCarrierFlushedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, roomy, newFlusher(4))
		conns := []*connection{newConnection(), newConnection()}
		const streams = 10
		for range streams {
			for _, c := range conns {
				w.flusher.Start(w.subscribe(everything(t), fanout.Request{}), &carried{newRecorder(), c})
			}
			alone := newRecorder()
			w.flusher.Start(w.subscribe(everything(t), fanout.Request{}), alone)
		}
		synctest.Wait()
		for range 3 {
			w.put(thing{name: "x"})
			synctest.Wait()
		}
		for _, c := range conns {
			if len(c.flushes) != 3 {
				t.Errorf("flushed after %v writes, want 3 flushes", c.flushes)
			}
			for _, n := range c.flushes {
				if n != streams {
					t.Errorf("a flush after %d writes, want %d", n, streams)
				}
			}
			if c.written != 0 {
				t.Errorf("%d writes are not flushed", c.written)
			}
		}
	})
}

// unflushed makes the connections count how many of them have something unflushed, now and at most.
func unflushed(conns []*connection) (now, most *int) {
	now, most = new(int), new(int)
	for _, c := range conns {
		c.noted = func(int) {
			*now = 0
			for _, c := range conns {
				if c.written > 0 {
					*now++
				}
			}
			*most = max(*most, *now)
		}
	}
	return now, most
}

// Where much is due for all connections together, they are flushed before the round ends. Here each
// has another sink, to which nothing is written.
func TestCarriersFlushedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, roomy, newFlusher(1))
		const conns, size = 100, 100 << 10
		var all []*connection
		for range conns {
			c := newConnection()
			all = append(all, c)
			w.flusher.Start(w.subscribe(everything(t), fanout.Request{}), &carried{newRecorder(), c})
			w.flusher.Start(w.subscribe(sel(t, "none", "", ""), fanout.Request{}), &carried{newRecorder(), c})
		}
		synctest.Wait()
		now, most := unflushed(all)
		w.put(thing{name: "x", data: strings.Repeat("x", size)})
		synctest.Wait()
		if *now != 0 || *most < 2 || *most > fanout.MaxDueBytes/size+1 {
			t.Errorf("%d connections of %d were due at a time, and %d still are", *most, conns, *now)
		}
	})
}

// A connection is flushed as soon as all its sinks have been written to, and not before. Sinks that
// have ended are not waited for.
func TestCarrierFlushedWhenComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, roomy, newFlusher(1))
		const conns, streams = 20, 5
		var all []*connection
		var leaving []*fanout.Subscription
		for range conns {
			c := newConnection()
			all = append(all, c)
			for range streams {
				w.flusher.Start(w.subscribe(everything(t), fanout.Request{}), &carried{newRecorder(), c})
			}
			left := w.subscribe(sel(t, "none", "", ""), fanout.Request{})
			w.flusher.Start(left, &carried{newRecorder(), c})
			leaving = append(leaving, left)
		}
		synctest.Wait()
		now, most := unflushed(all)
		w.put(thing{name: "x"})
		synctest.Wait()
		if *now != 0 || *most != conns {
			t.Errorf("%d connections with a sink that gets nothing were due at a time, want all %d", *most, conns)
		}
		for _, s := range leaving {
			s.End(fanout.Ending{Reason: fanout.Gone})
		}
		synctest.Wait()
		now, most = unflushed(all)
		w.put(thing{name: "x"})
		synctest.Wait()
		if *now != 0 || *most != 1 {
			t.Errorf("%d complete connections were due at a time, want one after another", *most)
		}
		for i, c := range all {
			if last := c.flushes[len(c.flushes)-1]; last != streams {
				t.Errorf("connection %d: the last flush followed %d writes, want %d", i, last, streams)
			}
		}
	})
}

// What a sink sends at its end is flushed too.
func TestCarrierFlushedBehindEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, roomy, newFlusher(1))
		c := newConnection()
		for _, graceful := range []bool{false, true} {
			s := w.subscribe(everything(t), fanout.Request{Bookmarks: true})
			sink := &carried{newRecorder(), c}
			w.flusher.Start(s, &endCounted{sink})
			synctest.Wait()
			s.End(fanout.Ending{Reason: fanout.Gone, Graceful: graceful})
			synctest.Wait()
			if c.written != 0 {
				t.Errorf("graceful %t: %d writes are not flushed", graceful, c.written)
			}
		}
	})
}

// endCounted counts its end as a write.
type endCounted struct{ *carried }

func (s *endCounted) End(r fanout.Reason, complete bool) {
	s.of.mu.Lock()
	s.of.noteLocked(1)
	s.of.mu.Unlock()
	s.carried.End(r, complete)
}

// Connections are spread over the shards, also when each opens all its streams before the next one
// comes, and their number is a multiple of the number of shards.
func TestCarriersSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards, streams = 4, 8
		w := newWorldOf(t, roomy, newFlusher(shards))
		conns := make(map[int]int) // by shard
		for range 3 * shards {
			c := newConnection()
			for range streams {
				w.flusher.Start(w.subscribe(everything(t), fanout.Request{}), &carried{newRecorder(), c})
			}
			conns[c.carrier.Shard()]++
		}
		synctest.Wait()
		for i := range shards {
			if conns[i] != 3 {
				t.Errorf("shard %d has %d connections, want 3", i, conns[i])
			}
		}
	})
}
