package metrics

import "github.com/VictoriaMetrics/metrics"

var all = metrics.NewCounter("all") // want `metrics.NewCounter registers for the whole process`

func Count() {
	metrics.GetOrCreateCounter("some") // want `metrics.GetOrCreateCounter registers for the whole process`
	metrics.NewSet().NewCounter("mine")
}
