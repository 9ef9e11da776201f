//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// stormInside separates the storm's effect on watchfan from its effect on the whole machine, which
// the reader of the untouched shares.
var stormInside = &inside{
	title: "Storms, from within: watchfan's part of the latency, and threads that waited for a processor",
	note: "First write = p99 ms from an event's arrival at watchfan to its first write to a client " +
		"(watchfan_delivery_duration_seconds); " +
		"round = from there to the write to the last client (watchfan_flush_round_duration_seconds). " +
		"Both are watchfan's own histograms of all events before and during the storm, " +
		"without kube-apiserver and the clients' reading, " +
		"interpolated between the bounds of their buckets as Prometheus does.\n" +
		"CPU and waiting = % of a core during the storm. " +
		"A waiting thread is ready to run and has no core; several may wait at once.",
	columns: []column{
		{"first write before", "first-before-p99-ns", 1e-6}, {"during", "first-during-p99-ns", 1e-6},
		{"round before", "round-before-p99-ns", 1e-6}, {"during", "round-during-p99-ns", 1e-6},
		{"CPU: watchfan", "watchfan-cpu-%", 1}, {"kube-apiserver", "kube-apiserver-cpu-%", 1},
		{"storm", stormFrontName + "-cpu-%", 1}, {"bench", "bench-cpu-%", 1},
		{"waiting: watchfan", "watchfan-wait-%", 1}, {"kube-apiserver", "kube-apiserver-wait-%", 1},
		{"bench", "bench-wait-%", 1},
	},
}

// A stormMoment holds all counters at one moment.
type stormMoment struct {
	at     time.Time
	got    *reading                 // by the untouched
	own    map[string]buckets       // watchfan's histograms; nil for another peer
	waited map[string]time.Duration // by process
}

// moment reads all counters.
func (r *stormRun) moment(ctx context.Context) (m stormMoment, err error) {
	m = stormMoment{at: time.Now(), got: r.fleet.read(), waited: make(map[string]time.Duration)}
	for _, p := range r.processes() {
		if m.waited[p.Name], err = p.Waited(); err != nil {
			return m, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if r.stage.peer == direct {
		return m, nil
	}
	page, err := r.stage.proxy.admin.get(ctx, "/metrics")
	if err != nil {
		return m, err
	}
	m.own, err = ownHistograms(page)
	return m, err
}

// stormNotice returns the latency of the untouched before a storm (from calm to before), during it
// (from before to during) and after it, and the servers' own counts for the same times.
func stormNotice(calm, before, during, after stormMoment) (m []metric, err error) {
	period := during.at.Sub(before.at)
	for _, name := range sortedKeys(during.waited) {
		waited := during.waited[name] - before.waited[name]
		m = append(m, metric{name + "-wait-%", 100 * waited.Seconds() / period.Seconds()})
	}
	for _, span := range []struct {
		name     string
		from, to stormMoment
	}{{"before-", calm, before}, {"during-", before, during}} {
		own, err := ownLatency(span.name, span.from.own, span.to.own)
		if err != nil {
			return nil, err
		}
		m = append(m, own...)
	}
	after.got.sub(during.got)
	during.got.sub(before.got)
	before.got.sub(calm.got)
	q := func(m stormMoment, q float64) float64 { return float64(m.got.latency.Quantile(q)) }
	return append(m,
		metric{unitBefore, q(before, 0.99)}, metric{unitDuring, q(during, 0.99)}, metric{unitAfter, q(after, 0.99)},
		metric{"before-p50-ns", q(before, 0.5)}, metric{"during-p50-ns", q(during, 0.5)},
		metric{"during-max-ns", q(during, 1)}, metric{"x", q(during, 0.99) / max(q(before, 0.99), 1)}), nil
}
