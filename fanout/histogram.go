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
	buckets, sum := h.buckets()
	for _, b := range buckets {
		fmt.Fprintf(w, "%s_bucket{le=\"%g\"} %d\n", h.name, b.LE, b.Count)
	}
	fmt.Fprintf(w, "%s_sum %g\n%s_count %d\n", h.name, sum, h.name, buckets[len(buckets)-1].Count)
}

// Bucket counts the values of at most LE. The last bucket's LE is +Inf.
type Bucket struct {
	LE    float64
	Count uint64
}

// buckets returns the cumulative counts and the sum.
func (h *histogram) buckets() (buckets []Bucket, sum float64) {
	var total uint64
	for i := range h.counts {
		total += h.counts[i].Load()
		bound := math.Inf(1)
		if i < len(h.bounds) {
			bound = h.bounds[i]
		}
		buckets = append(buckets, Bucket{bound, total})
	}
	return buckets, math.Float64frombits(h.sum.Load())
}
