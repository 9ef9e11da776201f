//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// TestResult: the figures of a case are for each delivery, or for each write where nobody watches.
func TestResult(t *testing.T) {
	var h measure.Histogram
	h.Record(time.Millisecond)
	r := result{writes: 100, batch: 1.5, Usage: measure.Usage{Window: 2 * time.Second, Others: 10 * time.Millisecond,
		RSS: map[string]int64{"watchfan": 400 << 20},
		CPU: map[string]time.Duration{"bench": time.Second, "etcd": 100 * time.Millisecond, "watchfan": 600 * time.Millisecond}}}
	f := func(want map[string]float64) {
		t.Helper()
		m := r.metrics("watchfan")
		for unit, want := range want {
			if got, ok := find(m, unit); !ok || got < want*0.98 || got > want*1.02 {
				t.Errorf("%s: got %v, %t want %v", unit, got, ok, want)
			}
		}
	}
	f(map[string]float64{unitWriteCPU: 7e6, unitWrites: 50, "watchfan-cpu-%": 30, "others-cpu-%": 0.5})
	r.got = reading{deliveries: 100_000, early: 1000, bytes: 186_000_000}
	r.got.latency.Add(&h)
	f(map[string]float64{unitCPU: 6000, unitAllCPU: 7000, unitPerCore: 100_000 / 0.6, unitDeliveries: 50_000, unitP50: 1e6,
		"early-%": 1, unitBytes: 1860, "RSS-B": 400 << 20, unitBatch: 1.5})
}

// TestSubtractWrites: a paced case is charged with no more than what the writes cost beside it.
func TestSubtractWrites(t *testing.T) {
	s := fanoutSection()
	for round := 1; round <= 2; round++ {
		for _, r := range []rate{50, unpaced} {
			watched := []metric{{unitAllCPU, 20_000}, {unitWrites, 50}, {unitDeliveries, 50_000}}
			s.add(sample{peer: watchfanTLS, round: round, axes: axes("clients", 1000, "rate", r), metrics: watched},
				sample{peer: floorTLS, round: round, axes: axes("clients", 1000, "rate", r), metrics: watched},
				sample{peer: direct, round: round, axes: axes("clients", 0, "rate", r),
					metrics: []metric{{unitWriteCPU, float64(round) * 1e6}, {unitWrites, 50}}})
		}
	}
	subtractWrites(s)
	for _, x := range s.samples {
		got, ok := x.get(unitNetCPU)
		if want := x.peer == watchfanTLS && x.axis("rate") == "50"; ok != want || ok && got != 20_000-float64(x.round)*1000 {
			t.Errorf("%s of round %d: %v, %t", s.name(&x), x.round, got, ok)
		}
	}
}
