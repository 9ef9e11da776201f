package fanout_test

import (
	"slices"
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

// End counts what a sink sends at its end.
func (s *carried) End(r fanout.Reason, complete bool) {
	s.of.mu.Lock()
	s.of.noteLocked(1)
	s.of.mu.Unlock()
	s.recorder.End(r, complete)
}

func (s *carried) Carrier() *fanout.Carrier { return s.of.carrier }

func (s *carried) Write(batch [][]byte) (bool, error) {
	s.of.mu.Lock()
	s.of.noteLocked(1)
	s.of.mu.Unlock()
	return s.recorder.Write(batch)
}

// carry opens connections with so many streams of everything, and so many that are sent nothing.
func (w *world) carry(conns, streams, quiet int) (all []*connection, idle []*fanout.Subscription) {
	for range conns {
		c := newConnection()
		all = append(all, c)
		for range streams {
			w.flusher.Start(w.subscribe(everything(w.t), fanout.Request{Bookmarks: true}), &carried{newRecorder(), c})
		}
		for range quiet {
			idle = append(idle, w.subscribe(sel(w.t, "none", "", ""), fanout.Request{Bookmarks: true}))
			w.flusher.Start(idle[len(idle)-1], &carried{newRecorder(), c})
		}
	}
	synctest.Wait()
	return all, idle
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

// The sinks of one connection are served together: an event is written to all of them, and then the
// connection is flushed once. Nothing stays unflushed.
func TestCarrierFlushedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, roomy, newFlusher(4))
		const streams = 10
		for range streams {
			w.client(everything(t), fanout.Request{})
		}
		conns, _ := w.carry(2, streams, 0)
		for range 3 {
			w.put(thing{name: "x"})
			synctest.Wait()
		}
		for _, c := range conns {
			if !slices.Equal(c.flushes, []int{streams, streams, streams}) || c.written != 0 {
				t.Errorf("flushed after %v writes, and %d are not flushed, want %d three times", c.flushes, c.written, streams)
			}
		}
	})
}

// Where much is due for all connections together, they are flushed before the round ends. Here each
// has another sink, to which nothing is written.
func TestCarriersFlushedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, roomy, newFlusher(1))
		const conns, size = 100, 100 << 10
		all, _ := w.carry(conns, 1, 1)
		now, most := unflushed(all)
		w.put(thing{name: "x", data: strings.Repeat("x", size)})
		synctest.Wait()
		if *now != 0 || *most < 2 || *most > fanout.MaxDueBytes/size+1 {
			t.Errorf("%d connections of %d were due at a time, and %d still are", *most, conns, *now)
		}
	})
}

// A connection is flushed as soon as all its sinks have been written to, and not before. Sinks that
// have ended are not waited for, and what they send at their end is flushed too.
func TestCarrierFlushedWhenComplete(t *testing.T) {
	for _, graceful := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorldOf(t, roomy, newFlusher(1))
			const conns, streams = 20, 5
			all, leaving := w.carry(conns, streams, 1)
			now, most := unflushed(all)
			w.put(thing{name: "x"})
			synctest.Wait()
			if *now != 0 || *most != conns {
				t.Errorf("%d connections with a sink that gets nothing were due at a time, want all %d", *most, conns)
			}
			for _, s := range leaving {
				s.End(fanout.Ending{Reason: fanout.Gone, Graceful: graceful})
			}
			synctest.Wait()
			if *now != 0 {
				t.Errorf("graceful %t: the ends of %d connections are not flushed", graceful, *now)
			}
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
}

// Connections are spread over the shards, also when each opens all its streams before the next one
// comes, and their number is a multiple of the number of shards.
func TestCarriersSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards = 4
		conns, _ := newWorldOf(t, roomy, newFlusher(shards)).carry(3*shards, 8, 0)
		by := make(map[int]int)
		for _, c := range conns {
			by[c.carrier.Shard()]++
		}
		for i := range shards {
			if by[i] != 3 {
				t.Errorf("shard %d has %d connections, want 3", i, by[i])
			}
		}
	})
}
