package fanout

import "time"

// turn is what one subscription's prelude may be searched for, before others have theirs. It ends
// by what it has looked at, and by the clock, which knows what that took: whichever comes first.
type searchBudget struct {
	work, looked int
	until        time.Time
}

const (
	// maxSearchWork bounds the objects or events that are looked at, each with what it costs to ask
	// the filter about it: 20 to 50 ns for each, a millisecond at worst.
	maxSearchWork = 20_000
	// searchTime bounds the time, which is looked at once for each searchCheckEvery objects or events.
	searchTime       = time.Millisecond
	searchCheckEvery = 64
)

func newSearchBudget() searchBudget { return searchBudget{until: time.Now().Add(searchTime)} }

// look counts something looked at, of this cost.
func (b *searchBudget) spend(cost int) {
	b.looked++
	b.work += 1 + cost
}

// over reports whether the turn has ended. It does not before something has been looked at.
func (b *searchBudget) spent() bool {
	if b.work >= maxSearchWork {
		return true
	}
	if b.looked < searchCheckEvery {
		return false
	}
	b.looked = 0
	if !time.Now().Before(b.until) {
		b.work = maxSearchWork
	}
	return b.work >= maxSearchWork
}
