package metrics

import "github.com/VictoriaMetrics/metrics"

var test = metrics.NewCounter("test")
