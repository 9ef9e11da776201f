package http1

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/apistatus"
)

// Metrics are the metrics of a Server: rejected requests.
type Metrics struct{ malformed, held *metrics.Counter }

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	return &Metrics{malformed: apistatus.Rejections(set, "malformed"), held: apistatus.Rejections(set, "held_memory")}
}
