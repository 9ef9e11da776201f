package lane

import (
	"fmt"
	"io"
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
	cacheVersion = exposition.Describe("gauge", "watchfan_cache_resource_version",
		"Newest resourceVersion up to which the cache has all changes.")
	cacheVersionAge = exposition.Describe("gauge", "watchfan_cache_resource_version_age_seconds",
		"Time since kube-apiserver has last said how far it is: with a list, an event, a bookmark or a proof of freshness.")
	cacheObjects = exposition.Describe("gauge", "watchfan_cache_objects",
		"Objects in the cache.")
	cacheBytes = exposition.Describe("gauge", "watchfan_cache_bytes",
		"Bytes of the objects in the cache.")
	cacheHistoryEvents = exposition.Describe("gauge", "watchfan_cache_history_events",
		"Past events that are kept for clients to resume from. At most --history-frames.")
	cacheHistoryBytes = exposition.Describe("gauge", "watchfan_cache_history_bytes",
		"Bytes of the past events that are kept for clients to resume from. At most --history-bytes.")
	cacheFormBytes = exposition.Describe("gauge", "watchfan_cache_form_bytes",
		"Memory for the forms in which views, and clients without managedFields, get the objects and the past events.")
	cacheIndexes = exposition.Describe("gauge", "watchfan_cache_indexes",
		"Indexes of the cache: labels, fields and names that clients select by, and whose objects are found without a search.")
	cacheIndexBytes = exposition.Describe("gauge", "watchfan_cache_index_bytes",
		"Memory for the indexes of the cache.")
	selfChecks = exposition.Describe("counter", "watchfan_lane_self_checks_total",
		"Comparisons of the cache with kube-apiserver, by result. After result different the collection is listed again.")
)

// writeMetrics writes the series of the lanes, the eldest first. It holds no lock meanwhile, because
// some take those of caches.
func (ls *Lanes) writeMetrics(w io.Writer) {
	for _, l := range ls.all() {
		if !l.selects() { // clients choose selectors, so a selector must not become a label
			l.metrics.Set.WritePrometheus(w)
		}
	}
}

// laneMetrics are the metrics of one lane.
type laneMetrics struct {
	reflector.Series
	served        map[string]*metrics.Counter // by verb
	fillingPassed *metrics.Counter
	checks        map[CheckResult]*metrics.Counter
}

func newLaneMetrics(l *Lane) laneMetrics {
	gvr := l.GVR
	m := laneMetrics{
		Series: reflector.Series{
			Set: metrics.NewSet(),
			Labels: fmt.Sprintf(`group=%q,version=%q,resource=%q,encoding=%q`,
				gvr.Group, gvr.Version, gvr.Resource, l.Representation),
		},
		served: make(map[string]*metrics.Counter),
		checks: make(map[CheckResult]*metrics.Counter),
	}
	for _, verb := range []string{"get", "list", "watch"} {
		m.served[verb] = m.Counter(cachedRequests, "verb", verb)
	}
	for _, result := range []CheckResult{CheckEqual, CheckDifferent, CheckFailed} {
		m.checks[result] = m.Counter(selfChecks, "result", string(result))
	}
	m.Gauge(laneSynced, func() float64 {
		if l.Synced() {
			return 1
		}
		return 0
	})
	m.Gauge(fillingWaiting, func() float64 { return float64(l.filling.room.Len()) })
	m.fillingPassed = m.Counter(fillingPassed)
	stats := func(metric string, value func(fanout.Stats) int64) {
		m.Gauge(metric, func() float64 { return float64(value(l.Cache.Stats())) })
	}
	stats(laneWatchers, func(s fanout.Stats) int64 { return int64(s.Subscriptions) })
	m.Gauge(cacheVersion, func() float64 { return float64(l.Cache.Progress()) })
	m.Gauge(cacheVersionAge, func() float64 {
		if told := l.Cache.Told(); told != 0 {
			return time.Duration(fanout.MonotonicNow() - told).Seconds()
		}
		return 0
	})
	stats(cacheObjects, func(s fanout.Stats) int64 { return int64(s.Objects) })
	stats(cacheBytes, func(s fanout.Stats) int64 { return s.Bytes })
	stats(cacheHistoryEvents, func(s fanout.Stats) int64 { return int64(s.HistoryEvents) })
	stats(cacheHistoryBytes, func(s fanout.Stats) int64 { return s.HistoryBytes })
	stats(cacheFormBytes, func(s fanout.Stats) int64 { return s.FormBytes })
	stats(cacheIndexes, func(s fanout.Stats) int64 { return int64(s.Indexes) })
	stats(cacheIndexBytes, func(s fanout.Stats) int64 { return s.IndexBytes })
	m.Gauge(deliveredEvents, func() float64 { events, _ := l.Cache.Delivered(); return float64(events) })
	m.Gauge(deliveredBytes, func() float64 { _, bytes := l.Cache.Delivered(); return float64(bytes) })
	return m
}

// CountServed counts a get, list or watch that is answered from the lane's cache.
func (l *Lane) CountServed(verb string) { l.metrics.served[verb].Inc() }
