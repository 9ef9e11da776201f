package lane

import (
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// moment is a point in time that any goroutine may set and read. The zero value is no time.
type moment struct{ at atomic.Int64 } // a [fanout.MonotonicTime]

// set makes the moment t.
func (m *moment) set(t fanout.MonotonicTime) { m.at.Store(int64(t)) }

// clear makes the moment no time.
func (m *moment) clear() { m.at.Store(0) }

// time returns the moment, zero for no time.
func (m *moment) time() time.Time { return fanout.MonotonicTime(m.at.Load()).Time() }

// once sets the moment to now and reports true, unless it was set within the interval before. Of
// several callers at the same time it reports true to one.
func (m *moment) once(interval time.Duration) bool {
	now, last := int64(fanout.MonotonicNow()), m.at.Load()
	if last != 0 && now-last < int64(interval) {
		return false
	}
	return m.at.CompareAndSwap(last, now)
}
