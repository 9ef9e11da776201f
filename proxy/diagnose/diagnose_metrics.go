package diagnose

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/exposition"
)

var (
	evictionsTotal = exposition.Describe("counter", "watchfan_evictions_total",
		"Watches evicted for exceeding their buffer, by reason.")
	evictions = func() map[Cause]*metrics.Counter {
		m := make(map[Cause]*metrics.Counter)
		for _, c := range []Cause{ClientNotReading, NetworkLoss, ClientReadsSlowly, NetworkSlow, StreamWindowClosed,
			SharedWindowClosed, WatchfanSlow} {
			m[c] = metrics.NewCounter(evictionsTotal + `{reason="` + string(c) + `"}`)
		}
		return m
	}()
)
