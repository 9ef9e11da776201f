//go:build linux

package main

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// TestStormNotice: what came before a storm is told from what came during it, in what clients saw and in what watchfan counted.
func TestStormNotice(t *testing.T) {
	start := time.Now()
	var latency histogram
	after := func(seconds, events int, took time.Duration, waited time.Duration, first, round string) stormMoment {
		for range events {
			latency.record(took)
		}
		m := stormMoment{at: start.Add(time.Duration(seconds) * time.Second), got: &reading{}, waited: map[string]time.Duration{"watchfan": waited}}
		m.got.latency.add(&latency)
		if first != "" {
			m.own = make(map[string]buckets)
			for of, count := range map[string]string{"first": first, "round": round} {
				b, err := parseBuckets(page("0", "0", count, count), "took_seconds")
				if err != nil {
					t.Fatal(err)
				}
				m.own[of] = b
			}
		}
		return m
	}
	f := func(want map[string]float64, moments [4]stormMoment) {
		t.Helper()
		metrics, err := stormNotice(moments[0], moments[1], moments[2], moments[3])
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]float64)
		for _, m := range metrics {
			got[m.unit] = m.value
		}
		if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
			t.Fatalf("got %v want %v", g, w)
		}
		for unit, w := range want {
			if g := got[unit]; g < 0.98*w || g > 1.02*w {
				t.Errorf("%s: got %v want %v", unit, g, w)
			}
		}
	}
	ms := float64(time.Millisecond)
	seen := map[string]float64{
		unitBefore: 2 * ms, "before-p50-ns": 2 * ms, unitDuring: 30 * ms, "during-p50-ns": 30 * ms, "during-max-ns": 30 * ms, unitAfter: 3 * ms,
		"x": 15, "watchfan-wait-%": 150,
	}
	f(seen, [4]stormMoment{
		after(0, 10, time.Hour, 0, "", ""), after(4, 20, 2*time.Millisecond, 3*time.Second, "", ""),
		after(6, 50, 30*time.Millisecond, 6*time.Second, "", ""), after(10, 5, 3*time.Millisecond, 7*time.Second, "", ""),
	})
	latency = histogram{}
	own := maps.Clone(seen)
	// All are between 1 and 10 ms. Of rounds there were none before the storm.
	own["first-before-p99-ns"], own["first-during-p99-ns"], own["round-during-p99-ns"] = 9.91*ms, 9.91*ms, 9.91*ms
	f(own, [4]stormMoment{
		after(0, 10, time.Hour, 0, "7", "7"), after(4, 20, 2*time.Millisecond, 3*time.Second, "8", "7"),
		after(6, 50, 30*time.Millisecond, 6*time.Second, "20", "9"), after(10, 5, 3*time.Millisecond, 7*time.Second, "21", "10"),
	})
	moment := after(0, 0, 0, 0, "7", "7")
	if _, err := stormNotice(moment, after(4, 0, 0, 0, "6", "7"), moment, moment); err == nil {
		t.Error("a watchfan that began anew is taken for one that went on")
	}
}
