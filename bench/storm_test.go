package main

import (
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
)

// TestStormNotice separates the time before a storm from the storm, and from the time after it.
func TestStormNotice(t *testing.T) {
	var latency measure.Histogram
	after := func(events int, took time.Duration) *load.Reading {
		for range events {
			latency.Record(took)
		}
		r := &load.Reading{}
		r.Latency.Add(&latency)
		return r
	}
	ms := float64(time.Millisecond)
	got := stormNotice(after(10, time.Hour), after(20, 2*time.Millisecond), after(50, 30*time.Millisecond), after(5, 3*time.Millisecond))
	for unit, want := range map[string]float64{"before-p99-ns": 2 * ms, "before-p50-ns": 2 * ms, "after-p99-ns": 3 * ms,
		"during-p99-ns": 30 * ms, "during-p50-ns": 30 * ms, "during-max-ns": 30 * ms, "x": 15} {
		if v, ok := report.Find(got, unit); !ok || v < 0.98*want || v > 1.02*want {
			t.Errorf("%s: got %v, %t want %v", unit, v, ok, want)
		}
	}
}
