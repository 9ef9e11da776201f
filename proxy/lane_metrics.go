package proxy

import (
	"fmt"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// laneMetrics are the metrics of one lane, registered while its lane lives.
type laneMetrics struct {
	set *metrics.Set

	// Is there one watch upstream? 0 while it is broken.
	watches *metrics.Gauge
	// How many changes come?
	events *metrics.Counter
	// How often does the watch break, must the collection be listed again, and do all clients start anew?
	breaks, relists, resets *metrics.Counter

	labels string
}

func newLaneMetrics(l *lane) laneMetrics {
	gvr := l.gvr
	labels := fmt.Sprintf(`group=%q,version=%q,resource=%q,encoding=%q`, gvr.Group, gvr.Version, gvr.Resource, l.representation)
	set := metrics.NewSet()
	name := func(metric string) string { return "watchfan_" + metric + "{" + labels + "}" }
	m := laneMetrics{
		set:     set,
		labels:  labels,
		watches: set.NewGauge(name("upstream_watches"), nil),
		events:  set.NewCounter(name("upstream_events_total")),
		breaks:  set.NewCounter(name("upstream_watch_breaks_total")),
		relists: set.NewCounter(name("upstream_relists_total")),
		resets:  set.NewCounter(name("upstream_resets_total")),
	}
	// How large is the cache, and how far back can clients resume?
	for metric, value := range map[string]func() float64{
		"cache_objects":        func() float64 { return float64(l.cache.Stats().Objects) },
		"cache_bytes":          func() float64 { return float64(l.cache.Stats().Bytes) },
		"cache_history_events": func() float64 { return float64(l.cache.Stats().HistoryEvents) },
		"cache_history_bytes":  func() float64 { return float64(l.cache.Stats().HistoryBytes) },
		"lane_watchers":        func() float64 { return float64(l.cache.Stats().Subscriptions) },
	} {
		set.NewGauge(name(metric), value)
	}
	metrics.RegisterSet(set)
	return m
}

// proved counts a proof of freshness: how, whether it came about, and how long it took.
func (m laneMetrics) proved(method string, err error, took time.Duration) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.set.GetOrCreateCounter(fmt.Sprintf(`watchfan_freshness_proofs_total{%s,method=%q,result=%q}`, m.labels, method, result)).Inc()
	m.set.GetOrCreateFloatCounter(fmt.Sprintf(`watchfan_freshness_proof_seconds_total{%s}`, m.labels)).Add(took.Seconds())
}

// How many requests are answered from a lane's cache? Watches are counted when they begin.
func (m laneMetrics) served(verb string) {
	m.set.GetOrCreateCounter(`watchfan_cached_requests_total{` + m.labels + `,verb="` + verb + `"}`).Inc()
}

// sum adds up the counters of the lane whose names begin with prefix and contain part.
func (m laneMetrics) sum(prefix, part string) (n uint64) {
	for _, name := range m.set.ListMetricNames() {
		if strings.HasPrefix(name, prefix) && strings.Contains(name, part) {
			n += m.set.GetOrCreateCounter(name).Get()
		}
	}
	return n
}

func (m laneMetrics) unregister() { metrics.UnregisterSet(m.set, true) }
