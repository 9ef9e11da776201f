package fanout

import "time"

// MonotonicTime is a point in time by the monotonic clock, in nanoseconds. It replaces [time.Time]
// where that takes too much room or can't be stored atomically. Nanoseconds since the Unix epoch
// would not do: they jump when the machine's clock is set, and every age and timeout would jump
// with them. The zero value means never.
type MonotonicTime int64

// processStart is shortly before this process did anything, so no time within the process is zero.
var processStart = time.Now().Add(-time.Second)

// MonotonicNow returns the current time.
func MonotonicNow() MonotonicTime { return MonotonicOf(time.Now()) }

// MonotonicOf returns t, which must come from [time.Now], as a MonotonicTime.
func MonotonicOf(t time.Time) MonotonicTime { return MonotonicTime(t.Sub(processStart)) }

// Time returns t as a [time.Time] with a reading of the monotonic clock; zero for zero. So Sub and
// [time.Since] are right even if the wall clock is set. The date is wrong by as much as the wall
// clock has been adjusted since the process began.
func (t MonotonicTime) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return processStart.Add(time.Duration(t))
}
