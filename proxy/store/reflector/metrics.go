package reflector

import (
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/exposition"
)

var (
	upstreamWatches = exposition.Describe("gauge", "watchfan_upstream_watches",
		"1 while the upstream watch is open, 0 while it is broken.")
	upstreamEvents = exposition.Describe("counter", "watchfan_upstream_events_total",
		"Changes received from kube-apiserver.")
	upstreamEventBytes = exposition.Describe("counter", "watchfan_upstream_event_bytes_total",
		"Bytes of the changes received from kube-apiserver, before any compression.")
	upstreamWatchBreaks = exposition.Describe("counter", "watchfan_upstream_watch_breaks_total",
		"Times that the upstream watch broke.")
	upstreamRelists = exposition.Describe("counter", "watchfan_upstream_relists_total",
		"Times that the collection was listed again.")
	upstreamResets = exposition.Describe("counter", "watchfan_upstream_resets_total",
		"Times that all watches ended with 410 because upstream went back in time.")
	lanesFilled = exposition.Describe("counter", "watchfan_lanes_filled_total",
		"Lanes filled for the first time, by source: upstream is a list at kube-apiserver, sibling is another replica.")
	upstreamReencodings = exposition.Describe("counter", "watchfan_upstream_reencodings_total",
		"Times that all watches ended with 410 because kube-apiserver wrote an object in other bytes at the same resourceVersion, as after an upgrade.")
)

// Metrics are the metrics of all reflectors of a Source. They outlive the reflectors.
type Metrics struct {
	filledUpstream, filledSibling *metrics.Counter
	changes                       atomic.Uint64 // that upstream has sent
}

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	return &Metrics{
		filledUpstream: set.NewCounter(lanesFilled + `{source="upstream"}`),
		filledSibling:  set.NewCounter(lanesFilled + `{source="sibling"}`),
	}
}

// reflectorMetrics are the metrics of one reflector.
type reflectorMetrics struct {
	watches                 *metrics.Gauge
	events, eventBytes      *metrics.Counter
	breaks, relists, resets *metrics.Counter
	reencoded               *metrics.Counter
}

func newReflectorMetrics(set *metrics.Set, series func(metric string, more ...string) string) reflectorMetrics {
	counter := func(metric string) *metrics.Counter { return set.NewCounter(series(metric)) }
	return reflectorMetrics{
		watches:    set.NewGauge(series(upstreamWatches), nil),
		events:     counter(upstreamEvents),
		eventBytes: counter(upstreamEventBytes),
		breaks:     counter(upstreamWatchBreaks),
		relists:    counter(upstreamRelists),
		resets:     counter(upstreamResets),
		reencoded:  counter(upstreamReencodings),
	}
}
