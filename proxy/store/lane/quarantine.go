package lane

import "time"

// A resource in quarantine has no lane, and its requests are passed through.
const (
	// quarantineFor is how long a resource stays in quarantine because of an object that cannot be
	// cached. Somebody has to change the object.
	quarantineFor = 10 * time.Minute
	// memoryQuarantine is how long a resource stays in quarantine because memory has no room for
	// it. A resource that never has room is listed that often for nothing.
	memoryQuarantine = time.Minute
)

// quarantine passes requests for such a lane through for d.
func (ls *Lanes) quarantine(key Key, d time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.quarantines[key] = time.Now().Add(d)
}

// Quarantined reports whether requests for such a lane are passed through because it could not be
// filled. After the quarantine it goes on to report true until the lane has been filled, or until
// nobody has asked for it for the idle timeout.
func (ls *Lanes) Quarantined(key Key) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return !ls.quarantines[key].IsZero()
}

// QuarantinedCount returns how many lanes are in quarantine now.
func (ls *Lanes) QuarantinedCount() (n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, until := range ls.quarantines {
		if time.Now().Before(until) {
			n++
		}
	}
	return n
}
