package fanout_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/watchfan/watchfan/fanout"
)

// counter is a Sink that counts the frames that it takes, those of compressed initial events and replays by the run, and keeps nothing.
type counter struct {
	frames atomic.Int64
	ended  atomic.Bool
}

var (
	chunkEnd     = []byte("}\n\r\n")
	gzipChunkEnd = []byte("\x00\x00\xff\xff\r\n")
)

func (c *counter) Write(batch [][]byte) (bool, error) {
	n := int64(0)
	for _, b := range batch {
		if bytes.HasSuffix(b, chunkEnd) || bytes.HasSuffix(b, gzipChunkEnd) { // else it is a head
			n++
		}
	}
	c.frames.Add(n)
	return false, nil
}

func (c *counter) Drain(func(error)) {}

func (c *counter) End(fanout.Reason, bool) { c.ended.Store(true) }

func (c *counter) count() int { return int(c.frames.Load()) }

// An event costs what its groups cost, not what their members do.
func TestDeliveryAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("counts are those without the race detector")
	}
	allocs := func(clients int) float64 {
		const runs = 200
		w := newWorld(t, roomy)
		events := prepare(w.rv, runs+200)
		sinks := make([]*counter, clients)
		for i := range sinks {
			sinks[i] = &counter{}
			w.flusher.Start(w.subscribe(everything(t), fanout.Request{}), sinks[i])
		}
		next := 0
		deliver := func() {
			apply(t, w.cache, events[next])
			next++
			for _, s := range sinks {
				await(s, next)
			}
		}
		for range 100 { // until buffers have grown
			deliver()
		}
		return testing.AllocsPerRun(runs, deliver)
	}
	one, many := allocs(1), allocs(2000)
	t.Logf("%v allocations per event for one client, %v for 2000", one, many)
	if one > 6 || many > one+3 {
		t.Errorf("%v allocations per event for one client, %v for 2000", one, many)
	}
}
