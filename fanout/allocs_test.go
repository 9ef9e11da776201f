//go:build !race

package fanout_test

// The race detector allocates on its own account: make unit runs these without it.

import (
	"testing"

	"github.com/watchfan/watchfan/fanout"
)

// An event costs what its groups cost, not what their members do.
func TestDeliveryAllocs(t *testing.T) {
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

// An event costs what its lists cost, not what their members do.
func TestGzipDeliveryAllocs(t *testing.T) {
	allocs := func(clients int) float64 {
		const runs = 200
		w := newWorld(t, roomy)
		events := prepare(w.rv, runs+200)
		sinks := make([]*counter, clients)
		for i := range sinks {
			sinks[i] = &counter{}
			w.flusher.Start(w.subscribe(everything(t), fanout.Request{Gzip: true}), sinks[i])
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
	if one > 16 || many > one+3 {
		t.Errorf("%v allocations per event for one client, %v for 2000", one, many)
	}
}
