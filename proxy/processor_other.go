//go:build !unix

package proxy

import "time"

// processorTime returns 0, because the time is not known on this system.
func processorTime() time.Duration { return 0 }
