//go:build !race

package fanout_test

// The race detector itself allocates. make unit runs these tests without it.

import (
	"testing"

	"github.com/watchfan/watchfan/fanout"
)

// An event's allocations grow with the number of groups and not of their members.
func TestDeliveryAllocs(t *testing.T) {
	for name, way := range map[string]struct {
		request fanout.Request
		most    float64 // for one client
	}{
		"plain": {fanout.Request{}, 6},
		"gzip":  {fanout.Request{Gzip: true}, 16},
		"lean":  {fanout.Request{Variant: fanout.Lean}, 8},
		"trim":  {fanout.Request{Variant: withoutData}, 20},
	} {
		one, many := deliveryAllocs(t, way.request, 1), deliveryAllocs(t, way.request, 2000)
		t.Logf("%s: %v allocations per event for one client, %v for 2000", name, one, many)
		if one > way.most || many > one+3 {
			t.Errorf("%s: %v allocations per event for one client, %v for 2000", name, one, many)
		}
	}
}

// deliveryAllocs returns how many allocations an event takes until all clients have it.
func deliveryAllocs(t *testing.T, r fanout.Request, clients int) float64 {
	const runs = 200
	w := newWorld(t, roomy)
	events := prepare(w.rv, runs+200)
	sinks := make([]*counter, clients)
	for i := range sinks {
		sinks[i] = &counter{}
		w.flusher.Start(w.subscribe(everything(t), r), sinks[i])
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
