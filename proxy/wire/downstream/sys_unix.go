//go:build unix && !linux

package downstream

import "syscall"

func sysRead(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

func sysWrite(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }

// nothingCame reports whether a read would wait.
func nothingCame(fd uintptr) bool {
	_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN
}
