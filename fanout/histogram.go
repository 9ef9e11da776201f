package fanout

import (
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// histogram is a Prometheus histogram with classic le buckets. The histograms of
// VictoriaMetrics/metrics v1.35 do not have these. It may be used from any goroutine.
type histogram struct {
	name   string
	bounds []float64       // upper bounds, ascending
	counts []atomic.Uint64 // not cumulative; the last counts values above all bounds
	sum    atomic.Uint64   // bits of a float64
}

func newHistogram(set *metrics.Set, name string, bounds ...float64) *histogram {
	h := &histogram{name: name, bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
	set.RegisterMetricsWriter(h.write)
	return h
}

func (h *histogram) observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

func (h *histogram) write(w io.Writer) {
	var total uint64
	for i, bound := range h.bounds {
		total += h.counts[i].Load()
		fmt.Fprintf(w, "%s_bucket{le=\"%g\"} %d\n", h.name, bound, total)
	}
	total += h.counts[len(h.bounds)].Load()
	fmt.Fprintf(w, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %g\n%s_count %d\n",
		h.name, total, h.name, math.Float64frombits(h.sum.Load()), h.name, total)
}
