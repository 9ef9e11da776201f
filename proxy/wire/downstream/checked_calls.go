//go:build !linux || race

package downstream

import "syscall"

// sysRead and sysWrite tell the race detector that what was before a write is before the read of what was
// written.

func sysRead(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

func sysWrite(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }
