package watchers

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/exposition"
)

var evictionsTotal = exposition.Describe("counter", "watchfan_evictions_total",
	"Watches evicted for exceeding their buffer, by reason.")

// Metrics are the metrics of evicted watches.
type Metrics struct{ evictions map[Cause]*metrics.Counter }

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	m := &Metrics{evictions: make(map[Cause]*metrics.Counter)}
	for _, c := range []Cause{ClientNotReading, NetworkLoss, ClientReadsSlowly, NetworkSlow, StreamWindowClosed,
		SharedWindowClosed, WatchfanSlow} {
		m.evictions[c] = set.NewCounter(evictionsTotal + `{reason="` + string(c) + `"}`)
	}
	return m
}
