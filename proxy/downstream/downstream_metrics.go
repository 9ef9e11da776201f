package downstream

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/exposition"
)

var (
	rejectedConnections = metrics.NewCounter(exposition.Describe("counter", "watchfan_rejected_connections_total",
		"Connections reset because of --max-connections, the limit of open files or a lack of memory."))

	abandonedConnections = metrics.NewCounter(exposition.Describe("counter", "watchfan_abandoned_connections_total",
		"Connections whose clients left before it was their turn. It rises when very many clients connect at once."))
)
