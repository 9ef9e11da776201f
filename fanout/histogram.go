package fanout

import (
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// histogram is a Prometheus histogram of seconds with classic le buckets. The histograms of
// VictoriaMetrics/metrics v1.35 do not have these. It may be used from any goroutine.
type histogram struct {
	name   string
	counts [len(latencies)]atomic.Uint64 // not cumulative
	sum    atomic.Uint64                 // bits of a float64
}

// latencies are the upper bounds of the buckets.
var latencies = [...]float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, math.Inf(1),
}

func newHistogram(set *metrics.Set, name string) *histogram {
	h := &histogram{name: name}
	set.RegisterMetricsWriter(h.write)
	return h
}

func (h *histogram) observe(v float64) {
	i := 0
	for v > latencies[i] {
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
	for i, bound := range latencies {
		total += h.counts[i].Load()
		buckets = append(buckets, Bucket{bound, total})
	}
	return buckets, math.Float64frombits(h.sum.Load())
}
