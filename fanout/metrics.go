package fanout

import (
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// Description describes a metric at /metrics: its type in Prometheus' words, and its help text.
type Description struct{ Type, Help string }

// Descriptions describes this package's metrics by name. It does not change.
var Descriptions = map[string]Description{
	"watchfan_watchers": {"gauge", "Watches that are served from the cache."},
	"watchfan_lean_watchers": {"gauge",
		"Watches that are served from the cache without metadata.managedFields, as their clients asked."},
	"watchfan_parked_watchers": {"gauge", "Watches that wait for their client to read."},
	"watchfan_watcher_parks_total": {"counter",
		"Times that a client's socket, or its window of HTTP/2, accepted no more data."},

	"watchfan_filter_bytes": {"gauge",
		"Memory for the selectors of the watches that are served from the cache. " +
			"Watches with the same filter share it."},
	"watchfan_costly_watches_total": {"counter",
		"Watches passed through because their selectors, together with those of other watches, " +
			"cost too much for each event."},

	"watchfan_gzip_delivered_bytes_total": {"counter", "Bytes written to clients as gzip."},
	"watchfan_gzip_plain_bytes_total": {"counter",
		"Size of the bytes written to clients as gzip, before compression."},
	"watchfan_gzip_compressions_total": {"counter",
		"Compressions. The result of one compression serves any number of clients."},

	"watchfan_flushes_total": {"counter", "Writes of delivered events. Events divided by flushes is the batch size."},

	// The latency of an event. These are never observed for each client.
	"watchfan_append_duration_seconds": {"histogram",
		"Time from the arrival of an event until it is in the cache and in the clients' lists. " +
			"Observed once for each event."},
	"watchfan_delivery_duration_seconds": {"histogram",
		"Time from the arrival of an event to its first write. " +
			"Observed once for each round of a flusher's shard."},
	"watchfan_flush_round_duration_seconds": {"histogram",
		"Time from the first client's write to the last client's in one round. " +
			"Observed once for each round of a flusher's shard."},

	"watchfan_watches_ended_total": {"counter", "Ended watches, by reason."},
}

// Metrics are the metrics of one Flusher and of its caches. They outlive the caches.
type Metrics struct {
	subscriptions, lean, parked        *metrics.Gauge
	parks, flushes                     *metrics.Counter
	filterBytes                        *metrics.Gauge
	costly                             *metrics.Counter
	gzipBytes, gzipPlain, compressions *metrics.Counter
	appending, delivery, round         *histogram
	ended                              map[Reason]*metrics.Counter
	delivered                          delivered // to all subscriptions
}

// NewMetrics adds the metrics to set, which has them once.
func NewMetrics(set *metrics.Set) *Metrics {
	m := &Metrics{
		subscriptions: set.NewGauge("watchfan_watchers", nil),
		lean:          set.NewGauge("watchfan_lean_watchers", nil),
		parked:        set.NewGauge("watchfan_parked_watchers", nil),
		parks:         set.NewCounter("watchfan_watcher_parks_total"),
		flushes:       set.NewCounter("watchfan_flushes_total"),
		filterBytes:   set.NewGauge("watchfan_filter_bytes", nil),
		costly:        set.NewCounter("watchfan_costly_watches_total"),
		gzipBytes:     set.NewCounter("watchfan_gzip_delivered_bytes_total"),
		gzipPlain:     set.NewCounter("watchfan_gzip_plain_bytes_total"),
		compressions:  set.NewCounter("watchfan_gzip_compressions_total"),
		appending:     newHistogram(set, "watchfan_append_duration_seconds"),
		delivery:      newHistogram(set, "watchfan_delivery_duration_seconds"),
		round:         newHistogram(set, "watchfan_flush_round_duration_seconds"),
		ended:         make(map[Reason]*metrics.Counter),
	}
	for _, r := range Reasons {
		m.ended[r] = set.NewCounter(`watchfan_watches_ended_total{reason="` + string(r) + `"}`)
	}
	return m
}

// histogram is a Prometheus histogram of seconds with classic le buckets. The histograms of
// VictoriaMetrics/metrics v1.35 do not have these. It may be used from any goroutine.
type histogram struct {
	name   string
	counts [len(latencies)]atomic.Uint64 // not cumulative
	sum    atomic.Uint64                 // bits of a float64
}

// latencies are the upper bounds of the buckets.
var latencies = [...]float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, math.Inf(1),
}

func newHistogram(set *metrics.Set, name string) *histogram {
	h := &histogram{name: name}
	set.RegisterMetricsWriter(h.write)
	return h
}

func (h *histogram) observe(v float64) {
	i := 0
	for v > latencies[i] {
		i++
	}
	h.counts[i].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

func (h *histogram) write(w io.Writer) {
	buckets, sum := h.buckets()
	for _, b := range buckets {
		fmt.Fprintf(w, "%s_bucket{le=\"%g\"} %d\n", h.name, b.LE, b.Count)
	}
	fmt.Fprintf(w, "%s_sum %g\n%s_count %d\n", h.name, sum, h.name, buckets[len(buckets)-1].Count)
}

// Bucket counts the values of at most LE. The last bucket's LE is +Inf.
type Bucket struct {
	LE    float64
	Count uint64
}

// buckets returns the cumulative counts and the sum.
func (h *histogram) buckets() (buckets []Bucket, sum float64) {
	var total uint64
	for i, bound := range latencies {
		total += h.counts[i].Load()
		buckets = append(buckets, Bucket{bound, total})
	}
	return buckets, math.Float64frombits(h.sum.Load())
}
