package fanout

import "github.com/VictoriaMetrics/metrics"

// Metric is what /metrics says about a metric: its type, as Prometheus calls it, and the question that it answers.
type Metric struct{ Type, Question string }

// Metrics describes this package's metrics by name. It does not change.
var Metrics = make(map[string]Metric)

// describe adds to Metrics and returns the name.
func describe(kind, name, question string) string {
	Metrics[name] = Metric{kind, question}
	return name
}

var (
	subscriptions = metrics.NewGauge(describe("gauge", "watchfan_watchers",
		"How many watches are served from the cache now?"), nil)
	parked = metrics.NewGauge(describe("gauge", "watchfan_parked_watchers",
		"How many watches wait for their client to read?"), nil)
	parks = metrics.NewCounter(describe("counter", "watchfan_watcher_parks_total",
		"How often does a client's socket take no more?"))

	filterBytes = metrics.NewGauge(describe("gauge", "watchfan_filter_bytes",
		"How much memory do the selectors of the watches that are served from the cache hold? Watches of one filter share it."), nil)
	costlyFilters = metrics.NewCounter(describe("counter", "watchfan_costly_watches_total",
		"How many watches are passed through because their selectors, with those of the others, would take too much for each event?"))

	gzipBytes = metrics.NewCounter(describe("counter", "watchfan_gzip_delivered_bytes_total",
		"How many of the bytes written to clients are gzip?"))
	gzipPlainBytes = metrics.NewCounter(describe("counter", "watchfan_gzip_plain_bytes_total",
		"How many bytes would it take to tell the same without gzip?"))
	compressions = metrics.NewCounter(describe("counter", "watchfan_gzip_compressions_total",
		"How often is something compressed, for any number of clients?"))

	flushes = metrics.NewCounter(describe("counter", "watchfan_flushes_total",
		"How many writes do the delivered events take? Events divided by flushes is the batch size."))

	// The way of an event. Nothing here is observed for each client.
	appendSeconds = newHistogram(describe("histogram", "watchfan_append_duration_seconds",
		"How long does an event take from its arrival until it is in the cache and clients' lists? Observed once for each event."), latencies...)
	deliverySeconds = newHistogram(describe("histogram", "watchfan_delivery_duration_seconds",
		"How long does an event take from its arrival to its first write? Observed once for each round of a flusher's shard."), latencies...)
	roundSeconds = newHistogram(describe("histogram", "watchfan_flush_round_duration_seconds",
		"How much later is the last client of a round written to than the first? Observed once for each round of a flusher's shard."), latencies...)

	ended = func() map[Reason]*metrics.Counter {
		name := describe("counter", "watchfan_watches_ended_total", "Why do watches end?")
		m := make(map[Reason]*metrics.Counter)
		for _, r := range Reasons {
			m[r] = metrics.NewCounter(name + `{reason="` + string(r) + `"}`)
		}
		return m
	}()
)

var latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
