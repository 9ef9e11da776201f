package fanout_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/watchfan/watchfan/fanout"
)

// BenchmarkHashJoin is a watch with 100 hash ranges that joins and leaves, beside others: N parts that
// do not overlap, and watches with 100 ranges each, as many as there is room for.
func BenchmarkHashJoin(b *testing.B) {
	spread := func(n, i int) selector { // n ranges over all hashes, at another place for each i
		var ranges []fanout.HashRange
		step := uint64(math.MaxUint64) / uint64(n)
		for r := range uint64(n) {
			ranges = append(ranges, fanout.HashRange{First: r*step + uint64(i)*1000, Last: r*step + step/2 + uint64(i)*1000})
		}
		return everything(b).shard(fanout.HashedUID, ranges...)
	}
	for _, parts := range []int{50, 3000} {
		for _, crowd := range []int{0, 20} {
			b.Run(fmt.Sprintf("parts=%d/crowd=%d", parts, crowd), func(b *testing.B) {
				var x fanout.Index
				for i := range parts {
					x.Add(nth(everything(b), i, parts).filter(b))
				}
				for i := range crowd {
					x.Add(spread(100, i+1).filter(b))
				}
				f := spread(100, 0).filter(b)
				for b.Loop() {
					if x.Add(f) {
						x.Remove(f)
					}
				}
			})
		}
	}
}
