package fanout_test

import (
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
	written int   // since the last flush
	flushes []int // what written was
}

func newConnection() *connection {
	c := &connection{}
	c.carrier = fanout.NewCarrier(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flushes = append(c.flushes, c.written)
		c.written = 0
	})
	return c
}

func (s *carried) Carrier() *fanout.Carrier { return s.of.carrier }

func (s *carried) Write(batch [][]byte) (bool, error) {
	s.of.mu.Lock()
	s.of.written++
	s.of.mu.Unlock()
	return s.recorder.Write(batch)
}

// The sinks of one connection are served together: an event is written to all of them, and then the
// connection is flushed once. Nothing stays unflushed.
func TestCarrierFlushedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, roomy, fanout.NewFlusher(4, 0))
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

// Connections are spread over the shards, also when each opens all its streams before the next one
// comes, and their number is a multiple of the number of shards.
func TestCarriersSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards, streams = 4, 8
		w := newWorldOf(t, roomy, fanout.NewFlusher(shards, 0))
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
