package reflector

import (
	"fmt"

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
		"Lanes filled for the first time, by source: upstream is a list at kube-apiserver, sibling is another replica, disk is --cache-dir.")
	upstreamReencodings = exposition.Describe("counter", "watchfan_upstream_reencodings_total",
		"Times that all watches ended with 410 because kube-apiserver wrote an object in other bytes at the same resourceVersion, as after an upgrade.")
)

// Series is the time series of one lane, which have labels in common.
type Series struct {
	Set    *metrics.Set
	Labels string // as in Prometheus' text format
}

// Name returns the name of a time series: the metric's name, with the labels and more, which are
// pairs of name and value.
func (s Series) Name(metric string, more ...string) string {
	labels := s.Labels
	for i := 0; i < len(more); i += 2 {
		labels += fmt.Sprintf(`,%s=%q`, more[i], more[i+1])
	}
	return metric + "{" + labels + "}"
}

// Counter returns the counter with a name as Name returns it.
func (s Series) Counter(metric string, more ...string) *metrics.Counter {
	return s.Set.GetOrCreateCounter(s.Name(metric, more...))
}

// Gauge adds a gauge with a name as Name returns it, whose value is what f returns.
func (s Series) Gauge(metric string, f func() float64) *metrics.Gauge {
	return s.Set.NewGauge(s.Name(metric), f)
}

// reflectorMetrics are the metrics of one reflector.
type reflectorMetrics struct {
	watches                 *metrics.Gauge
	events, eventBytes      *metrics.Counter
	breaks, relists, resets *metrics.Counter
	reencoded               *metrics.Counter
}
