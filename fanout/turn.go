package fanout

import "time"

// turn is what one subscription's prelude may be searched for, before others have theirs. It ends
// by what it has looked at, and by the clock, which knows what that took: whichever comes first.
type turn struct {
	work, looked int
	until        time.Time
}

const (
	// maxTurnWork bounds the objects or events that are looked at, each with what it costs to ask
	// the filter about it: 20 to 50 ns for each, a millisecond at worst.
	maxTurnWork = 20_000
	// turnTime bounds the time, which is looked at once for each turnLook objects or events.
	turnTime = time.Millisecond
	turnLook = 64
)

func newTurn() turn { return turn{until: time.Now().Add(turnTime)} }

// look counts something looked at, of this cost.
func (t *turn) look(cost int) {
	t.looked++
	t.work += 1 + cost
}

// over reports whether the turn has ended. It does not before something has been looked at.
func (t *turn) over() bool {
	if t.work >= maxTurnWork {
		return true
	}
	if t.looked < turnLook {
		return false
	}
	t.looked = 0
	if !time.Now().Before(t.until) {
		t.work = maxTurnWork
	}
	return t.work >= maxTurnWork
}
