package admission

import (
	"math"
	"testing"
)

// Each level of memory use begins at its limit and ends below it, so the level does not change all
// the time.
func TestMemoryLevels(t *testing.T) {
	const limit = 1000
	level := memoryEnough
	for _, step := range []struct {
		used int64
		want memoryLevel
	}{
		{0, memoryEnough}, {799, memoryEnough}, {800, memoryShort}, {799, memoryShort}, {751, memoryShort},
		{750, memoryEnough}, {900, memoryFull}, {851, memoryFull}, {850, memoryShort}, {899, memoryShort},
		{5000, memorySpent}, {700, memoryEnough}, {949, memoryFull}, {751, memoryShort}, {750, memoryEnough},
		{950, memorySpent}, {901, memorySpent}, {900, memoryFull}, {949, memoryFull}, {950, memorySpent},
		{851, memoryFull}, {950, memorySpent}, {760, memoryShort},
	} {
		before := level
		if level = level.next(step.used, limit); level != step.want {
			t.Fatalf("%v and %d of %d in use: got %v, want %v", before, step.used, limit, level, step.want)
		}
	}
	if got := memoryEnough.next(math.MaxInt64, math.MaxInt64); got != memorySpent {
		t.Errorf("got %v", got)
	}
}
