package fanout

import "time"

// Instant is a point in time, in nanoseconds by the monotonic clock, for where a [time.Time] takes
// too much room or cannot be stored atomically. Nanoseconds since the Unix epoch would not do: they
// jump when the machine's clock is set, and every age and timeout with them. The zero Instant is
// never.
type Instant int64

// began is shortly before this process did anything, so that no Instant of it is zero.
var began = time.Now().Add(-time.Second)

// Now returns the current Instant.
func Now() Instant { return InstantOf(time.Now()) }

// InstantOf returns the Instant of t, which comes from [time.Now].
func InstantOf(t time.Time) Instant { return Instant(t.Sub(began)) }

// Time returns i with a reading of the monotonic clock, so that Sub and [time.Since] are right
// whatever happens to the wall clock; zero for zero. The date that it tells is off by what the wall
// clock has been set since the process began.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return began.Add(time.Duration(i))
}
