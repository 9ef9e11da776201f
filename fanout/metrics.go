package fanout

import "github.com/VictoriaMetrics/metrics"

var (
	// How many watches are served from the cache now?
	subscriptions = metrics.NewGauge("watchfan_watchers", nil)
	// How many of them wait for their client to read?
	parked = metrics.NewGauge("watchfan_parked_watchers", nil)
	// How often does a client's socket take no more?
	parks = metrics.NewCounter("watchfan_watcher_parks_total")
	// How many events are delivered, and how many bytes is that?
	framesSent = metrics.NewCounter("watchfan_delivered_events_total")
	bytesSent  = metrics.NewCounter("watchfan_delivered_bytes_total")
	// How many of those bytes are gzip, how many would they be without, and how often is something compressed for that?
	gzipBytes      = metrics.NewCounter("watchfan_gzip_delivered_bytes_total")
	gzipPlainBytes = metrics.NewCounter("watchfan_gzip_plain_bytes_total")
	compressions   = metrics.NewCounter("watchfan_gzip_compressions_total")
	// How many writes does that take? Events divided by flushes is the batch size.
	flushes = metrics.NewCounter("watchfan_flushes_total")
	// How long does an event take from its arrival to its first writes? Observed once for each
	// round of a shard.
	deliverySeconds = newHistogram("watchfan_delivery_duration_seconds",
		.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
	// Why do watches end?
	ended = func() map[Reason]*metrics.Counter {
		m := make(map[Reason]*metrics.Counter)
		for _, r := range Reasons {
			m[r] = metrics.NewCounter(`watchfan_watches_ended_total{reason="` + string(r) + `"}`)
		}
		return m
	}()
)
