package fanout

import "time"

// MonotonicTime is a point in time, in nanoseconds by the monotonic clock, for where a [time.Time] takes
// too much room or cannot be stored atomically. Nanoseconds since the Unix epoch would not do: they
// jump when the machine's clock is set, and every age and timeout with them. The zero MonotonicTime is
// never.
type MonotonicTime int64

// began is shortly before this process did anything, so that no MonotonicTime of it is zero.
var processStart = time.Now().Add(-time.Second)

// Now returns the current Instant.
func MonotonicNow() MonotonicTime { return MonotonicOf(time.Now()) }

// MonotonicOf returns the MonotonicTime of t, which comes from [time.Now].
func MonotonicOf(t time.Time) MonotonicTime { return MonotonicTime(t.Sub(processStart)) }

// Time returns i with a reading of the monotonic clock, so that Sub and [time.Since] are right
// whatever happens to the wall clock; zero for zero. The date that it tells is off by what the wall
// clock has been set since the process began.
func (t MonotonicTime) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return processStart.Add(time.Duration(t))
}
