package lane

import (
	"fmt"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/exposition"
)

// DefinitionChanges counts for all lanes together.
var DefinitionChanges = metrics.NewCounter(exposition.Describe("counter", "watchfan_definition_changes_total",
	"Changes of the definitions of custom resources. Each change ends the watches of its resource."))

// What each lane has.
var (
	laneSynced = exposition.Describe("gauge", "watchfan_lane_synced",
		"1 once the collection has been listed and clients are served from the cache, 0 before.")
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
	upstreamReencodings = exposition.Describe("counter", "watchfan_upstream_reencodings_total",
		"Times that all watches ended with 410 because kube-apiserver wrote an object in other bytes at the same resourceVersion, as after an upgrade.")
	laneWatchers = exposition.Describe("gauge", "watchfan_lane_watchers",
		"Watches of clients.")
	deliveredEvents = exposition.Describe("counter", "watchfan_delivered_events_total",
		"Events written to clients. Each event counts once for each client; initial events and bookmarks count.")
	deliveredBytes = exposition.Describe("counter", "watchfan_delivered_bytes_total",
		"Bytes of events written to clients, after any compression and without TLS.")
	cachedRequests = exposition.Describe("counter", "watchfan_cached_requests_total",
		"Requests answered from the cache. Watches count when they begin.")
	cacheObjects = exposition.Describe("gauge", "watchfan_cache_objects",
		"Objects in the cache.")
	cacheBytes = exposition.Describe("gauge", "watchfan_cache_bytes",
		"Bytes of the objects in the cache.")
	cacheHistoryEvents = exposition.Describe("gauge", "watchfan_cache_history_events",
		"Past events that are kept for clients to resume from. At most --history-frames.")
	cacheHistoryBytes = exposition.Describe("gauge", "watchfan_cache_history_bytes",
		"Bytes of the past events that are kept for clients to resume from. At most --history-bytes.")
	freshnessProofs = exposition.Describe("counter", "watchfan_freshness_proofs_total",
		"Attempts to prove that the cache is as new as a consistent read requires, by method and result.")
	freshnessProofSeconds = exposition.Describe("counter", "watchfan_freshness_proof_seconds_total",
		"Time spent on proofs of freshness.")
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

func newLaneMetrics(l *Lane) laneMetrics {
	gvr := l.GVR
	m := laneMetrics{
		set:    metrics.NewSet(),
		labels: fmt.Sprintf(`group=%q,version=%q,resource=%q,encoding=%q`, gvr.Group, gvr.Version, gvr.Resource, l.Representation),
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
		if l.Synced() {
			return 1
		}
		return 0
	})
	m.addFilling(l.Filling)
	stats := func(metric string, value func(fanout.Stats) int64) {
		m.set.NewGauge(m.name(metric), func() float64 { return float64(value(l.Cache.Stats())) })
	}
	stats(laneWatchers, func(s fanout.Stats) int64 { return int64(s.Subscriptions) })
	stats(cacheObjects, func(s fanout.Stats) int64 { return int64(s.Objects) })
	stats(cacheBytes, func(s fanout.Stats) int64 { return s.Bytes })
	stats(cacheHistoryEvents, func(s fanout.Stats) int64 { return int64(s.HistoryEvents) })
	stats(cacheHistoryBytes, func(s fanout.Stats) int64 { return s.HistoryBytes })
	m.set.NewGauge(m.name(deliveredEvents), func() float64 { events, _ := l.Cache.Delivered(); return float64(events) })
	m.set.NewGauge(m.name(deliveredBytes), func() float64 { _, bytes := l.Cache.Delivered(); return float64(bytes) })
	metrics.RegisterSet(m.set)
	return m
}

// name is the name of a lane's series: the metric's, the lane's labels and more, as pairs of name
// and value.
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

// Served counts a request that is answered from the lane's cache.
func (m laneMetrics) Served(verb string) {
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

func (m laneMetrics) Unregister() { metrics.UnregisterSet(m.set, true) }
