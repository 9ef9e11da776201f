//go:build !unix

package proxy

import (
	"math"
	"time"
)

// Neither is known on this system.
func mostOpenFiles() int           { return math.MaxInt }
func processorTime() time.Duration { return 0 }
