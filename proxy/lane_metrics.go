package proxy

import (
	"fmt"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
)

// What each lane has.
var (
	laneSynced = describe("gauge", "watchfan_lane_synced",
		"Has the collection been listed, so that clients are served from the cache? 0 while it has never been.")
	upstreamWatches = describe("gauge", "watchfan_upstream_watches",
		"Is there one watch upstream? 0 while it is broken.")
	upstreamEvents = describe("counter", "watchfan_upstream_events_total",
		"How many changes come from kube-apiserver?")
	upstreamEventBytes = describe("counter", "watchfan_upstream_event_bytes_total",
		"How many bytes are the changes from kube-apiserver, before any compression?")
	upstreamWatchBreaks = describe("counter", "watchfan_upstream_watch_breaks_total",
		"How often does the upstream watch break?")
	upstreamRelists = describe("counter", "watchfan_upstream_relists_total",
		"How often must the collection be listed again?")
	upstreamResets = describe("counter", "watchfan_upstream_resets_total",
		"How often do all clients start anew, because upstream went back in time?")
	upstreamReencodings = describe("counter", "watchfan_upstream_reencodings_total",
		"How often do all clients start anew, because upstream writes the same objects differently?")
	laneWatchers = describe("gauge", "watchfan_lane_watchers",
		"How many watches of clients are there of each resource?")
	deliveredEvents = describe("counter", "watchfan_delivered_events_total",
		"How many events are written to clients? Each is counted once for each client; initial events and bookmarks count.")
	deliveredBytes = describe("counter", "watchfan_delivered_bytes_total",
		"How many bytes of events are written to clients, as they leave us, less TLS?")
	cachedRequests = describe("counter", "watchfan_cached_requests_total",
		"How many requests are answered from the cache? Watches are counted when they begin.")
	cacheObjects = describe("gauge", "watchfan_cache_objects",
		"How many objects does the cache hold?")
	cacheBytes = describe("gauge", "watchfan_cache_bytes",
		"How many bytes are the cached objects?")
	cacheHistoryEvents = describe("gauge", "watchfan_cache_history_events",
		"How many past events are kept, from which clients resume? At most --history-frames.")
	cacheHistoryBytes = describe("gauge", "watchfan_cache_history_bytes",
		"How many bytes are the past events, from which clients resume? At most --history-bytes.")
	freshnessProofs = describe("counter", "watchfan_freshness_proofs_total",
		"How often is the cache proved to be as new as a consistent read asks, how, and does it come about?")
	freshnessProofSeconds = describe("counter", "watchfan_freshness_proof_seconds_total",
		"How long do proofs of freshness take, all in all?")
)

// laneMetrics are the metrics of one lane, registered while its lane lives.
type laneMetrics struct {
	set    *metrics.Set
	labels string

	watches                 *metrics.Gauge
	events, eventBytes      *metrics.Counter
	breaks, relists, resets *metrics.Counter
	reencoded               *metrics.Counter
	proofSeconds            *metrics.FloatCounter
	fillingPassed           *metrics.Counter
}

func newLaneMetrics(l *lane) laneMetrics {
	gvr := l.gvr
	m := laneMetrics{
		set:    metrics.NewSet(),
		labels: fmt.Sprintf(`group=%q,version=%q,resource=%q,encoding=%q`, gvr.Group, gvr.Version, gvr.Resource, l.representation),
	}
	m.watches = m.set.NewGauge(m.name(upstreamWatches), nil)
	m.events = m.set.NewCounter(m.name(upstreamEvents))
	m.eventBytes = m.set.NewCounter(m.name(upstreamEventBytes))
	m.breaks = m.set.NewCounter(m.name(upstreamWatchBreaks))
	m.relists = m.set.NewCounter(m.name(upstreamRelists))
	m.resets = m.set.NewCounter(m.name(upstreamResets))
	m.reencoded = m.set.NewCounter(m.name(upstreamReencodings))
	m.proofSeconds = m.set.NewFloatCounter(m.name(freshnessProofSeconds))
	for _, verb := range []string{"get", "list", "watch"} {
		m.set.NewCounter(m.name(cachedRequests, "verb", verb))
	}
	for _, method := range []string{"list", "stream"} {
		for _, result := range []string{"ok", "failed"} {
			m.set.NewCounter(m.name(freshnessProofs, "method", method, "result", result))
		}
	}
	m.set.NewGauge(m.name(laneSynced), func() float64 {
		if l.synced() {
			return 1
		}
		return 0
	})
	m.addFilling(l.filling)
	stats := func(metric string, value func(fanout.Stats) int64) {
		m.set.NewGauge(m.name(metric), func() float64 { return float64(value(l.cache.Stats())) })
	}
	stats(laneWatchers, func(s fanout.Stats) int64 { return int64(s.Subscriptions) })
	stats(cacheObjects, func(s fanout.Stats) int64 { return int64(s.Objects) })
	stats(cacheBytes, func(s fanout.Stats) int64 { return s.Bytes })
	stats(cacheHistoryEvents, func(s fanout.Stats) int64 { return int64(s.HistoryEvents) })
	stats(cacheHistoryBytes, func(s fanout.Stats) int64 { return s.HistoryBytes })
	m.set.NewGauge(m.name(deliveredEvents), func() float64 { events, _ := l.cache.Delivered(); return float64(events) })
	m.set.NewGauge(m.name(deliveredBytes), func() float64 { _, bytes := l.cache.Delivered(); return float64(bytes) })
	metrics.RegisterSet(m.set)
	return m
}

// name is the name of a lane's series: the metric's, the lane's labels and more, as pairs of name and value.
func (m laneMetrics) name(metric string, more ...string) string {
	labels := m.labels
	for i := 0; i < len(more); i += 2 {
		labels += fmt.Sprintf(`,%s=%q`, more[i], more[i+1])
	}
	return metric + "{" + labels + "}"
}

// proved counts a proof of freshness: how, whether it came about, and how long it took.
func (m laneMetrics) proved(method string, err error, took time.Duration) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.set.GetOrCreateCounter(m.name(freshnessProofs, "method", method, "result", result)).Inc()
	m.proofSeconds.Add(took.Seconds())
}

// served counts a request that is answered from the lane's cache.
func (m laneMetrics) served(verb string) {
	m.set.GetOrCreateCounter(m.name(cachedRequests, "verb", verb)).Inc()
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
