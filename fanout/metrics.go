package fanout

import (
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// Description describes a metric at /metrics: its type in Prometheus' words, and its help text.
type Description struct{ Type, Help string }

// Descriptions describes this package's metrics by name. It does not change after initialisation.
var Descriptions = make(map[string]Description)

// describe adds a metric to Descriptions and returns its name.
func describe(kind, name, help string) string {
	Descriptions[name] = Description{kind, help}
	return name
}

var (
	watchers = describe("gauge", "watchfan_watchers",
		"Watches that are served from the cache.")
	leanWatchers = describe("gauge", "watchfan_lean_watchers",
		"Watches that are served from the cache without metadata.managedFields, as their clients asked.")
	parkedWatchers = describe("gauge", "watchfan_parked_watchers",
		"Watches that wait for their client to read.")
	watcherParks = describe("counter", "watchfan_watcher_parks_total",
		"Times that a client's socket, or its window of HTTP/2, accepted no more data.")

	filterBytes = describe("gauge", "watchfan_filter_bytes",
		"Memory for the selectors of the watches that are served from the cache. "+
			"Watches with the same filter share it.")
	costlyWatches = describe("counter", "watchfan_costly_watches_total",
		"Watches passed through because their selectors, together with those of other watches, "+
			"cost too much for each event.")

	gzipBytes = describe("counter", "watchfan_gzip_delivered_bytes_total",
		"Bytes written to clients as gzip.")
	gzipPlainBytes = describe("counter", "watchfan_gzip_plain_bytes_total",
		"Size of the bytes written to clients as gzip, before compression.")
	compressions = describe("counter", "watchfan_gzip_compressions_total",
		"Compressions. The result of one compression serves any number of clients.")

	flushes = describe("counter", "watchfan_flushes_total",
		"Writes of delivered events. Events divided by flushes is the batch size.")

	// The latency of an event. These are never observed for each client.
	appendSeconds = describe("histogram", "watchfan_append_duration_seconds",
		"Time from the arrival of an event until it is in the cache and in the clients' lists. "+
			"Observed once for each event.")
	deliverySeconds = describe("histogram", "watchfan_delivery_duration_seconds",
		"Time from the arrival of an event to its first write. "+
			"Observed once for each round of a flusher's shard.")
	roundSeconds = describe("histogram", "watchfan_flush_round_duration_seconds",
		"Time from the first client's write to the last client's in one round. "+
			"Observed once for each round of a flusher's shard.")

	watchesEnded = describe("counter", "watchfan_watches_ended_total", "Ended watches, by reason.")
)

// Metrics are the metrics of one Flusher and of its caches. They outlive the caches.
type Metrics struct {
	subscriptions, lean, parked        *metrics.Gauge
	parks, flushes                     *metrics.Counter
	filterBytes                        *metrics.Gauge
	costly                             *metrics.Counter
	gzipBytes, gzipPlain, compressions *metrics.Counter
	appending, delivery, round         *histogram
	ended                              map[Reason]*metrics.Counter

	// Written to all subscriptions.
	delivered struct {
		_             [64]byte // a cache line of its own, because all shards add to it
		events, bytes atomic.Uint64
		_             [64]byte
	}
}

// NewMetrics adds the metrics to set, which has them once.
func NewMetrics(set *metrics.Set) *Metrics {
	m := &Metrics{
		subscriptions: set.NewGauge(watchers, nil),
		lean:          set.NewGauge(leanWatchers, nil),
		parked:        set.NewGauge(parkedWatchers, nil),
		parks:         set.NewCounter(watcherParks),
		flushes:       set.NewCounter(flushes),
		filterBytes:   set.NewGauge(filterBytes, nil),
		costly:        set.NewCounter(costlyWatches),
		gzipBytes:     set.NewCounter(gzipBytes),
		gzipPlain:     set.NewCounter(gzipPlainBytes),
		compressions:  set.NewCounter(compressions),
		appending:     newHistogram(set, appendSeconds),
		delivery:      newHistogram(set, deliverySeconds),
		round:         newHistogram(set, roundSeconds),
		ended:         make(map[Reason]*metrics.Counter),
	}
	for _, r := range Reasons {
		m.ended[r] = set.NewCounter(watchesEnded + `{reason="` + string(r) + `"}`)
	}
	return m
}
