package fanout

import "time"

// searchBudget bounds the search for one subscription's prelude before the next subscription's
// turn. It is spent when enough has been looked at, or when enough time has passed, whichever comes
// first.
type searchBudget struct {
	work, looked int
	until        time.Time
}

const (
	// maxSearchWork bounds the objects or changes that are looked at, each counted with its
	// filter's cost: 20 to 50 ns each, 1 ms at worst.
	maxSearchWork = 20_000
	// searchTime bounds the time. The clock is read once for every searchCheckEvery objects or
	// changes.
	searchTime       = time.Millisecond
	searchCheckEvery = 64
)

func newSearchBudget() searchBudget { return searchBudget{until: time.Now().Add(searchTime)} }

// spend counts an object or change that was looked at, with its filter's cost.
func (b *searchBudget) spend(cost int) {
	b.looked++
	b.work += 1 + cost
}

// spent reports whether the budget is used up. It never is before something has been looked at.
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
