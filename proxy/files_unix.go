//go:build unix

package proxy

import (
	"math"
	"syscall"
)

// mostOpenFiles is how many files, connections among them, the process may have open. Go's runtime
// has raised the limit as far as it may.
func mostOpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(min(uint64(limit.Cur), math.MaxInt))
}
