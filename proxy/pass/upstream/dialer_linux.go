package upstream

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// endDeadPeer makes the kernel end a connection whose data has not been acknowledged, or whose
// peer's window has been closed, for deadPeer. Without it, the kernel would go on sending the same
// data for a quarter of an hour.
func endDeadPeer(_, _ string, c syscall.RawConn) error {
	var err error
	if controlErr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadPeer.Milliseconds()))
	}); controlErr != nil {
		return controlErr
	}
	return err
}
