//go:build !linux

package machine

import "time"

// ThreadTime returns 0: the processor time of the calling thread is not known.
func ThreadTime() time.Duration { return 0 }
