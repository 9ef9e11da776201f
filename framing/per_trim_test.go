package framing_test

import (
	"sync"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// Each Trim has one value, even if several goroutines make it at once, and nil is one of them.
func TestPerTrim(t *testing.T) {
	trims := []*framing.Trim{nil, framing.Lean, framing.NewTrim(bareMetadata), framing.NewTrim(bareMetadata)}
	var values framing.PerTrim[*framing.Trim]
	got := make([]**framing.Trim, 4*len(trims))
	var making, all sync.WaitGroup
	making.Add(len(got))
	for i := range got {
		trim := trims[i%len(trims)]
		all.Go(func() {
			got[i] = values.For(trim, func() *framing.Trim {
				making.Done()
				making.Wait() // so that nobody finds a value
				return trim
			})
		})
	}
	all.Wait()
	none := func() *framing.Trim { return nil }
	for i, v := range got {
		trim := trims[i%len(trims)]
		if *v != trim || v != got[i%len(trims)] || v != values.For(trim, none) {
			t.Errorf("goroutine %d got %p of %p, want %p of %p", i, v, *v, values.For(trim, none), trim)
		}
	}
	if n := testing.AllocsPerRun(10, func() { values.For(nil, none) }); n != 0 {
		t.Errorf("%v allocations for a value that exists, want 0", n)
	}
}
