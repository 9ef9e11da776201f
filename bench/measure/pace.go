//go:build linux

package measure

import (
	"context"
	"time"
)

// A Pace is an open-loop timetable: operation i is due at start + i/rate, whatever became of the
// operations before it. Load made this way does not slow down because the server did (Schroeder et
// al., Open Versus Closed: A Cautionary Tale, NSDI 2006); a server that cannot keep up shows as
// operations that start late, and as a rate below the one asked.
//
// It is a value, read-only, and may be shared. A rate of zero means no timetable: everything is due
// at once.
type Pace struct {
	Start time.Time
	Rate  float64 // operations per second
}

// due returns when operation i should start.
func (p Pace) due(i uint64) time.Time {
	if p.Rate <= 0 {
		return p.Start
	}
	return p.Start.Add(time.Duration(float64(i) / p.Rate * float64(time.Second)))
}

// Wait blocks until operation i is due and returns how late it already is: 0 for one that had to be
// waited for. It returns ctx's error if that ends first.
func (p Pace) Wait(ctx context.Context, i uint64) (late time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if p.Rate <= 0 {
		return 0, nil
	}
	ahead := time.Until(p.due(i))
	if ahead <= 0 {
		return -ahead, nil
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
