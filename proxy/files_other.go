//go:build !unix

package proxy

import "math"

// mostOpenFiles returns the maximum int, because the limit is not known on this system.
func mostOpenFiles() int { return math.MaxInt }
