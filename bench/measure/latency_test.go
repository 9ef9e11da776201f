package measure

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestQuantileAgreesWithSorting compares the histogram with a sorted slice of all values.
func TestQuantileAgreesWithSorting(t *testing.T) {
	for name, draw := range map[string]func(*rand.Rand) time.Duration{
		"constant":    func(*rand.Rand) time.Duration { return 12345 },
		"small":       func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(200)) },
		"exponential": func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * 1e7) },
		"wide":        func(r *rand.Rand) time.Duration { return time.Duration(1) << r.IntN(maxBits) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var h Histogram
			var d Distribution
			values := make([]time.Duration, 10_000)
			for i := range values {
				values[i] = draw(r)
				h.Record(values[i])
			}
			slices.Sort(values)
			d.Add(&h)
			for _, q := range []float64{0, 0.01, 0.5, 0.99, 0.999, 1} {
				got := d.Quantile(q)
				want := values[min(int(q*float64(len(values))), len(values)-1)]
				if diff := (got - want).Abs(); diff > want/64 {
					t.Errorf("quantile(%v): got %v want %v", q, got, want)
				}
			}
		})
	}
}

func TestBuckets(t *testing.T) {
	last := -1
	for v := time.Duration(0); v < 1<<maxBits; v += v/200 + 1 {
		i := bucketOf(v)
		if i != last && i != last+1 {
			t.Fatalf("bucketOf(%d) = %d after %d: a bucket was left out", v, i, last)
		}
		last = i
	}
	f := func(v time.Duration, want int) {
		t.Helper()
		if got := bucketOf(v); got != want {
			t.Errorf("bucketOf(%d): got %d want %d", v, got, want)
		}
	}
	f(-5, 0)
	f(0, 0)
	f(127, 127)
	f(128, 128)
	f(129, 128)
	f(1<<62, numBuckets-1)
}

func TestSubLeavesTheWindow(t *testing.T) {
	var h Histogram
	h.Record(time.Millisecond)
	var before, after Distribution
	before.Add(&h)
	h.Record(time.Second)
	h.Record(time.Second)
	after.Add(&h)
	after.Sub(&before)
	if after.Count != 2 {
		t.Fatalf("got %d values in the window want 2", after.Count)
	}
	if got := after.Quantile(0); got < 980*time.Millisecond {
		t.Errorf("got a smallest value of %v: the first window's leaked in", got)
	}
}
