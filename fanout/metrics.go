package fanout

import "github.com/VictoriaMetrics/metrics"

// Metric describes a metric at /metrics: its type in Prometheus' words, and its help text.
type Metric struct{ Type, Help string }

// Metrics describes this package's metrics by name. It does not change after initialisation.
var Metrics = make(map[string]Metric)

// describe adds a metric to Metrics and returns its name.
func describe(kind, name, help string) string {
	Metrics[name] = Metric{kind, help}
	return name
}

var (
	subscriptions = metrics.NewGauge(describe("gauge", "watchfan_watchers",
		"Watches that are served from the cache."), nil)
	leanSubscriptions = metrics.NewGauge(describe("gauge", "watchfan_lean_watchers",
		"Watches that are served from the cache without metadata.managedFields, as their clients asked."), nil)
	parked = metrics.NewGauge(describe("gauge", "watchfan_parked_watchers",
		"Watches that wait for their client to read."), nil)
	parks = metrics.NewCounter(describe("counter", "watchfan_watcher_parks_total",
		"Times that a client's socket, or its window of HTTP/2, accepted no more data."))

	filterBytes = metrics.NewGauge(describe("gauge", "watchfan_filter_bytes",
		"Memory for the selectors of the watches that are served from the cache. "+
			"Watches with the same filter share it."), nil)
	costlyFilters = metrics.NewCounter(describe("counter", "watchfan_costly_watches_total",
		"Watches passed through because their selectors, together with those of other watches, "+
			"cost too much for each event."))

	gzipBytes = metrics.NewCounter(describe("counter", "watchfan_gzip_delivered_bytes_total",
		"Bytes written to clients as gzip."))
	gzipPlainBytes = metrics.NewCounter(describe("counter", "watchfan_gzip_plain_bytes_total",
		"Size of the bytes written to clients as gzip, before compression."))
	compressions = metrics.NewCounter(describe("counter", "watchfan_gzip_compressions_total",
		"Compressions. The result of one compression serves any number of clients."))

	flushes = metrics.NewCounter(describe("counter", "watchfan_flushes_total",
		"Writes of delivered events. Events divided by flushes is the batch size."))

	// The latency of an event. These are never observed for each client.
	appendSeconds = newHistogram(describe("histogram", "watchfan_append_duration_seconds",
		"Time from the arrival of an event until it is in the cache and in the clients' lists. "+
			"Observed once for each event."), latencies...)
	deliverySeconds = newHistogram(describe("histogram", "watchfan_delivery_duration_seconds",
		"Time from the arrival of an event to its first write. "+
			"Observed once for each round of a flusher's shard."), latencies...)
	roundSeconds = newHistogram(describe("histogram", "watchfan_flush_round_duration_seconds",
		"Time from the first client's write to the last client's in one round. "+
			"Observed once for each round of a flusher's shard."), latencies...)

	ended = func() map[Reason]*metrics.Counter {
		name := describe("counter", "watchfan_watches_ended_total", "Ended watches, by reason.")
		m := make(map[Reason]*metrics.Counter)
		for _, r := range Reasons {
			m[r] = metrics.NewCounter(name + `{reason="` + string(r) + `"}`)
		}
		return m
	}()
)

var latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
