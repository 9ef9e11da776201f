//go:build linux && !race

package downstream

import (
	"syscall"
	"unsafe"
)

// sysRead and sysWrite are raw system calls, because those on a socket of Go's runtime cannot block. Of
// others the scheduler is told, and after a pause of the whole process its monitor wakes for that and
// looks around every 20 µs: a tenth of what a request costs that is passed through.

func sysRead(fd uintptr, p []byte) (int, error) { return sysIO(syscall.SYS_READ, fd, p) }

func sysWrite(fd uintptr, p []byte) (int, error) { return sysIO(syscall.SYS_WRITE, fd, p) }

func sysIO(call, fd uintptr, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
