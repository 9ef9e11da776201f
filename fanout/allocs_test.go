//go:build !race

package fanout_test

// The race detector itself allocates. make unit runs these tests without it.

import (
	"testing"

	"github.com/watchfan/watchfan/fanout"
)

// An event's allocations grow with the number of groups and not of their members.
func TestDeliveryAllocs(t *testing.T) {
	for _, way := range []struct {
		gzip bool
		most float64 // for one client
	}{{false, 6}, {true, 16}} {
		one, many := deliveryAllocs(t, way.gzip, 1), deliveryAllocs(t, way.gzip, 2000)
		t.Logf("gzip %t: %v allocations per event for one client, %v for 2000", way.gzip, one, many)
		if one > way.most || many > one+3 {
			t.Errorf("gzip %t: %v allocations per event for one client, %v for 2000", way.gzip, one, many)
		}
	}
}

// deliveryAllocs returns how many allocations an event takes until all clients have it.
func deliveryAllocs(t *testing.T, gzip bool, clients int) float64 {
	const runs = 200
	w := newWorld(t, roomy)
	events := prepare(w.rv, runs+200)
	sinks := make([]*counter, clients)
	for i := range sinks {
		sinks[i] = &counter{}
		w.flusher.Start(w.subscribe(everything(t), fanout.Request{Gzip: gzip}), sinks[i])
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
