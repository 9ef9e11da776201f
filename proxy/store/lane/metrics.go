package lane

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/store/reflector"
)

// The metrics of each lane, besides those of its reflector.
var (
	laneSynced = exposition.Describe("gauge", "watchfan_lane_synced",
		"1 once the collection has been listed and clients are served from the cache, 0 before.")
	laneWatchers = exposition.Describe("gauge", "watchfan_lane_watchers",
		"Watches of clients.")
	fillingWaiting = exposition.Describe("gauge", "watchfan_lane_waiting_requests",
		"Requests that wait for the first list of the collection.")
	fillingPassed = exposition.Describe("counter", "watchfan_lane_filling_passed_total",
		"Requests passed through because the collection has not been listed yet or could not be listed.")
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
	cacheIndexes = exposition.Describe("gauge", "watchfan_cache_indexes",
		"Indexes of the cache: labels, fields and names that clients select by, and whose objects are found without a search.")
	cacheIndexBytes = exposition.Describe("gauge", "watchfan_cache_index_bytes",
		"Memory for the indexes of the cache, and for results of searches that are kept.")
	freshnessProofs = exposition.Describe("counter", "watchfan_freshness_proofs_total",
		"Attempts to prove that the cache is as new as a consistent read requires, by method and result.")
	freshnessProofSeconds = exposition.Describe("counter", "watchfan_freshness_proof_seconds_total",
		"Time spent on proofs of freshness.")
	selfChecks = exposition.Describe("counter", "watchfan_lane_self_checks_total",
		"Comparisons of the cache with kube-apiserver, by result. After result different the collection is listed again.")
)

// Metrics are the metrics of all lanes of a server: what they count together, and the series of each
// while it lives.
type Metrics struct {
	reflectors *reflector.Metrics

	mu   sync.Mutex
	sets []*metrics.Set // of the lanes, the eldest first
}

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	m := &Metrics{reflectors: reflector.NewMetrics(set)}
	set.RegisterMetricsWriter(m.write)
	return m
}

// write writes the series of the lanes. It holds no lock meanwhile, because some take those of caches.
func (m *Metrics) write(w io.Writer) {
	m.mu.Lock()
	sets := slices.Clone(m.sets)
	m.mu.Unlock()
	for _, set := range sets {
		set.WritePrometheus(w)
	}
}

func (m *Metrics) add(set *metrics.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sets = append(m.sets, set)
}

func (m *Metrics) remove(set *metrics.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sets = slices.DeleteFunc(m.sets, func(s *metrics.Set) bool { return s == set })
}

// laneMetrics are the metrics of one lane.
type laneMetrics struct {
	set    *metrics.Set
	labels string

	proofSeconds  *metrics.FloatCounter
	fillingPassed *metrics.Counter
	checks        map[CheckResult]*metrics.Counter // of each result
}

func newLaneMetrics(l *Lane) laneMetrics {
	gvr := l.GVR
	m := laneMetrics{
		set: metrics.NewSet(),
		labels: fmt.Sprintf(`group=%q,version=%q,resource=%q,encoding=%q`,
			gvr.Group, gvr.Version, gvr.Resource, l.Representation),
	}
	m.proofSeconds = m.set.NewFloatCounter(m.name(freshnessProofSeconds))
	for _, verb := range []string{"get", "list", "watch"} {
		m.set.NewCounter(m.name(cachedRequests, "verb", verb))
	}
	for _, method := range []string{"list", "stream"} {
		for _, result := range []string{"ok", "failed"} {
			m.set.NewCounter(m.name(freshnessProofs, "method", method, "result", result))
		}
	}
	m.checks = make(map[CheckResult]*metrics.Counter)
	for _, result := range []CheckResult{CheckEqual, CheckDifferent, CheckFailed} {
		m.checks[result] = m.set.NewCounter(m.name(selfChecks, "result", string(result)))
	}
	m.set.NewGauge(m.name(laneSynced), func() float64 {
		if l.Synced() {
			return 1
		}
		return 0
	})
	m.set.NewGauge(m.name(fillingWaiting), func() float64 { return float64(l.filling.room.Len()) })
	m.fillingPassed = m.set.NewCounter(m.name(fillingPassed))
	stats := func(metric string, value func(fanout.Stats) int64) {
		m.set.NewGauge(m.name(metric), func() float64 { return float64(value(l.Cache.Stats())) })
	}
	stats(laneWatchers, func(s fanout.Stats) int64 { return int64(s.Subscriptions) })
	stats(cacheObjects, func(s fanout.Stats) int64 { return int64(s.Objects) })
	stats(cacheBytes, func(s fanout.Stats) int64 { return s.Bytes })
	stats(cacheHistoryEvents, func(s fanout.Stats) int64 { return int64(s.HistoryEvents) })
	stats(cacheHistoryBytes, func(s fanout.Stats) int64 { return s.HistoryBytes })
	stats(cacheIndexes, func(s fanout.Stats) int64 { return int64(s.Indexes) })
	stats(cacheIndexBytes, func(s fanout.Stats) int64 { return s.IndexBytes })
	m.set.NewGauge(m.name(deliveredEvents), func() float64 { events, _ := l.Cache.Delivered(); return float64(events) })
	m.set.NewGauge(m.name(deliveredBytes), func() float64 { _, bytes := l.Cache.Delivered(); return float64(bytes) })
	if !l.selects() { // clients choose selectors, so a selector must not become a label
		l.lanes.metrics.add(m.set)
	}
	return m
}

// name returns the name of a time series: the metric's name, with the lane's labels and more, which
// are pairs of name and value.
func (m laneMetrics) name(metric string, more ...string) string {
	labels := m.labels
	for i := 0; i < len(more); i += 2 {
		labels += fmt.Sprintf(`,%s=%q`, more[i], more[i+1])
	}
	return metric + "{" + labels + "}"
}

// proved counts an attempt at a proof of freshness: its method, its result and its time.
func (m laneMetrics) proved(method string, err error, took time.Duration) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.set.GetOrCreateCounter(m.name(freshnessProofs, "method", method, "result", result)).Inc()
	m.proofSeconds.Add(took.Seconds())
}

// CountServed counts a request that is answered from the lane's cache.
func (l *Lane) CountServed(verb string) {
	l.metrics.set.GetOrCreateCounter(l.metrics.name(cachedRequests, "verb", verb)).Inc()
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
