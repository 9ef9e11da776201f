package downstream

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/exposition"
)

var (
	rejectedConnections = exposition.Describe("counter", "watchfan_rejected_connections_total",
		"Connections reset because of --max-connections, the limit of open files or a lack of memory.")
	abandonedConnections = exposition.Describe("counter", "watchfan_abandoned_connections_total",
		"Connections whose clients left before it was their turn. It rises when very many clients connect at once.")
)

// Metrics are the metrics of connections that arrive.
type Metrics struct{ rejected, abandoned *metrics.Counter }

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	return &Metrics{rejected: set.NewCounter(rejectedConnections), abandoned: set.NewCounter(abandonedConnections)}
}
