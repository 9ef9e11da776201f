package measure

import (
	"context"
	"time"
)

// A Pace is an open-loop timetable: operation i is due at start + i/rate, independent of the
// operations before it. Such a load does not slow down with the server (Schroeder et al., Open
// Versus Closed: A Cautionary Tale, NSDI 2006). With a server that is too slow, operations start
// late and the rate is lower than the one asked for.
//
// It is a read-only value, and goroutines may share it. A rate of zero means no timetable: every
// operation is due at once.
type Pace struct {
	Start time.Time
	Rate  float64 // operations per second
}

// Wait blocks until operation i is due, and returns its delay: 0 after a wait, otherwise the time
// since it was due. It returns ctx's error if ctx ends first.
func (p Pace) Wait(ctx context.Context, i uint64) (late time.Duration, err error) {
	if p.Rate <= 0 {
		return 0, ctx.Err()
	}
	due := p.Start.Add(time.Duration(float64(i) / p.Rate * float64(time.Second)))
	if late = time.Since(due); late >= 0 {
		return late, ctx.Err()
	}
	select {
	case <-time.After(-late):
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
