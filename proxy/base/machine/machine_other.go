//go:build !linux

package machine

import (
	"errors"
	"time"
)

// Cgroup is a control group whose memory is limited. This system has none.
type Cgroup struct{ Limit int64 }

// Used fails on this system.
func (Cgroup) Used() (int64, error) { return 0, errors.ErrUnsupported }

// OwnCgroup returns no group on this system.
func OwnCgroup() (Cgroup, bool) { return Cgroup{}, false }

// ResidentMemory fails on this system.
func ResidentMemory() (int64, error) { return 0, errors.ErrUnsupported }

// Memory returns 0, because it is not known on this system.
func Memory() int64 { return 0 }

// ThreadTime returns 0: the processor time of the calling thread is not known.
func ThreadTime() time.Duration { return 0 }
