//go:build linux

package load

import (
	"fmt"
	"os"
	"syscall"
)

// otherFiles is the number of open files that a process needs beside its connections.
const OtherFiles = 256

// RoomFor returns the number of connections that this process and each of its servers may have.
func RoomFor() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Max, 1<<30)) - OtherFiles
}

// RaiseFileLimit makes room for n connections here and in the servers, which inherit the limit.
func RaiseFileLimit(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	need := uint64(n + OtherFiles)
	if limit.Max < need {
		return fmt.Errorf("%d watchers need %d open files, and this process may have %d: "+
			"raise the hard limit (ulimit -Hn) first", n, need, limit.Max)
	}
	limit.Cur = limit.Max
	return os.NewSyscallError("setrlimit", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
}
