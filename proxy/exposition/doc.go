// Package exposition describes the proxy's metrics and writes them in Prometheus' text format.
//
// A metric is declared beside the code that counts it, once, when the program starts:
//
//	var memorySheds = metrics.NewCounter(exposition.Describe("counter", "watchfan_memory_sheds_total",
//		"Lanes without clients stopped because memory was short."))
//
// The library that counts, github.com/VictoriaMetrics/metrics, knows no help texts. Describe keeps
// them, and [Write] puts each above the series of its metric. Package fanout cannot use this
// package, so it keeps its own descriptions in [fanout.Metrics], which are included here.
//
// deploy/METRICS.md is the table of all that is described; a test in deploy/deploytest compares the
// two.
package exposition
