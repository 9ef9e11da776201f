package main

import (
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
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
			if got, ok := report.Find(m, unit); !ok || got < want*0.98 || got > want*1.02 {
				t.Errorf("%s: got %v, %t want %v", unit, got, ok, want)
			}
		}
	}
	f(map[string]float64{report.UnitWriteCPU: 7e6, report.UnitWrites: 50, "watchfan-cpu-%": 30, "others-cpu-%": 0.5})
	r.got = load.Reading{Deliveries: 100_000, Early: 1000, Bytes: 186_000_000}
	r.got.Latency.Add(&h)
	f(map[string]float64{report.UnitCPU: 6000, report.UnitAllCPU: 7000, report.UnitPerCore: 100_000 / 0.6, report.UnitDeliveries: 50_000, report.UnitP50: 1e6,
		"early-%": 1, report.UnitBytes: 1860, "RSS-B": 400 << 20, report.UnitBatch: 1.5})
}

// TestSubtractWrites: a paced case is charged with no more than what the writes cost beside it.
func TestSubtractWrites(t *testing.T) {
	s := fanoutSection()
	for round := 1; round <= 2; round++ {
		for _, r := range []load.Rate{50, load.Unpaced} {
			watched := []report.Metric{report.M(report.UnitAllCPU, 20_000), report.M(report.UnitWrites, 50), report.M(report.UnitDeliveries, 50_000)}
			s.Add(&report.Sample{Peer: report.WatchfanTLS, Round: round, Axes: report.Axes("clients", 1000, "rate", r), Metrics: watched},
				&report.Sample{Peer: report.FloorBare, Round: round, Axes: report.Axes("clients", 1000, "rate", r), Metrics: watched},
				&report.Sample{Peer: report.Direct, Round: round, Axes: report.Axes("clients", 0, "rate", r),
					Metrics: []report.Metric{report.M(report.UnitWriteCPU, float64(round)*1e6), report.M(report.UnitWrites, 50)}})
		}
	}
	subtractWrites(s)
	for _, x := range s.Samples {
		got, ok := x.Get(report.UnitNetCPU)
		if want := x.Peer == report.WatchfanTLS && x.Axis("rate") == "50"; ok != want || ok && got != 20_000-float64(x.Round)*1000 {
			t.Errorf("%s of round %d: %v, %t", s.Name(x), x.Round, got, ok)
		}
	}
}
