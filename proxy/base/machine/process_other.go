//go:build !unix

package machine

import (
	"math"
	"time"
)

// MostOpenFiles returns the largest number, because there is no limit that is known on this system.
func MostOpenFiles() int { return math.MaxInt }

// ProcessorTime returns 0, because it is not known on this system.
func ProcessorTime() time.Duration { return 0 }
