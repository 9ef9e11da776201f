package proxy

import "time"

// How long a resource is passed through: because an object can't be cached, which somebody has to change, or because it finds no room, which
// others may have left by then. A collection that never has room is listed that often for nothing.
const (
	avoidFor = 10 * time.Minute
	roomIn   = time.Minute
)

// avoid has requests for such a lane passed through for d.
func (ls *lanes) avoid(key laneKey, d time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.avoided == nil {
		ls.avoided = make(map[laneKey]time.Time)
	}
	ls.avoided[key] = time.Now().Add(d)
}

// avoids reports whether requests for such a lane are passed through because it could not be filled, or were until it is being tried again.
func (ls *lanes) avoids(key laneKey) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return !ls.avoided[key].IsZero()
}

// avoiding is how many lanes there are not to be now.
func (ls *lanes) avoiding() (n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, until := range ls.avoided {
		if time.Now().Before(until) {
			n++
		}
	}
	return n
}
