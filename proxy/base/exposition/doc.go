// Package exposition describes the proxy's metrics and writes them in Prometheus' text format.
//
// A metric is described beside the code that counts it, once, when the program starts. Its series
// belong to one server, which has a set of them:
//
//	var memorySheds = exposition.Describe("counter", "watchfan_memory_sheds_total",
//		"Lanes without clients stopped because memory was short.")
//
//	shedLanes := set.NewCounter(memorySheds)
//
// The sets are those of github.com/VictoriaMetrics/metrics, which has no help texts. Describe keeps
// the help texts, and [Write] writes each above the series of its metric. Package fanout cannot
// import this package, so it has its own descriptions in [fanout.Descriptions]. They are included here.
//
// deploy/METRICS.md has a table of all described metrics. A test in deploy/deploytest compares the
// two.
package exposition
