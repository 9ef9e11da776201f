package machine

import (
	"math"
	"syscall"
	"time"
)

// MostOpenFiles returns how many files, including connections, the process may have open. Go's
// runtime has already raised the soft limit to the hard limit.
func MostOpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(min(uint64(limit.Cur), math.MaxInt))
}

// ProcessorTime returns the processor time that the process has used.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
