//go:build linux

package main

import "fmt"

// histograms are watchfan's histograms of its part of the latency, by their names in units: from an
// event's arrival to its first write, and from there to the write to the last client.
var histograms = []struct{ of, metric string }{
	{"first", "watchfan_delivery_duration_seconds"},
	{"round", "watchfan_flush_round_duration_seconds"},
}

// ownHistograms reads histograms from watchfan's /metrics.
func ownHistograms(page []byte) (own map[string]buckets, err error) {
	own = make(map[string]buckets)
	for _, h := range histograms {
		if own[h.of], err = parseBuckets(string(page), h.metric); err != nil {
			return nil, err
		}
	}
	return own, nil
}

// ownLatency returns the p99 of each histogram for what came between two readings, without those of
// which nothing came. span is part of the units' names.
func ownLatency(span string, from, to map[string]buckets) (m []metric, err error) {
	if to == nil { // another peer's
		return nil, nil
	}
	for _, h := range histograms {
		own, err := to[h.of].since(from[h.of])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.metric, err)
		}
		if seconds, ok := own.quantile(0.99); ok {
			m = append(m, metric{h.of + "-" + span + "p99-ns", seconds * 1e9})
		}
	}
	return m, nil
}
