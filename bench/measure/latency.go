package measure

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A Histogram counts durations in buckets, 64 for each power of two. A quantile is exact to 1.6 %,
// from 1 ns to 2^40 ns (18 minutes). A longer duration counts as 2^40 ns.
//
//	value        0 … 63   64 … 127   128 … 255   256 … 511
//	bucket is    1 ns     1 ns       2 ns        4 ns wide
//
// Any goroutine may write it, and read it (Distribution.Add): the readers of watches must not stop for a
// report. The zero value is empty and ready.
type Histogram struct {
	buckets [numBuckets]atomic.Uint64
}

const (
	subBits    = 6 // 1<<subBits buckets per power of two
	maxBits    = 40
	numBuckets = (maxBits - subBits + 1) << subBits
)

// bucketOf returns the bucket of d. Negative durations belong to bucket 0.
func bucketOf(d time.Duration) int {
	if d < 0 {
		return 0
	}
	v := min(uint64(d), 1<<maxBits-1)
	exp := max(bits.Len64(v)-subBits-1, 0)
	return exp<<subBits + int(v>>exp)
}

// bucketMid returns the middle of bucket i, the value of a quantile in it.
func bucketMid(i int) time.Duration {
	exp := max(i>>subBits-1, 0)
	low := uint64(i-exp<<subBits) << exp
	return time.Duration(low + 1<<exp/2)
}

func (h *Histogram) Record(d time.Duration) { h.buckets[bucketOf(d)].Add(1) }

// A Distribution is a copy of histograms, or the difference of two copies.
type Distribution struct {
	buckets [numBuckets]uint64
	Count   uint64
}

// Add adds the values that h holds now.
func (d *Distribution) Add(h *Histogram) {
	for i := range h.buckets {
		n := h.buckets[i].Load()
		d.buckets[i] += n
		d.Count += n
	}
}

// Sub subtracts an earlier copy. The values since then are left.
func (d *Distribution) Sub(earlier *Distribution) {
	for i, n := range earlier.buckets {
		d.buckets[i] -= n
	}
	d.Count -= earlier.Count
}

// Quantile returns the smallest recorded value that at least q of all values do not exceed, to the
// precision of its bucket. Without values it returns 0.
func (d *Distribution) Quantile(q float64) time.Duration {
	if d.Count == 0 {
		return 0
	}
	rank := min(uint64(q*float64(d.Count)), d.Count-1)
	for i, n := range d.buckets {
		if rank < n {
			return bucketMid(i)
		}
		rank -= n
	}
	return bucketMid(numBuckets - 1)
}
