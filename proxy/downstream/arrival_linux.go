package downstream

import (
	"net"

	"golang.org/x/sys/unix"
)

// HasLeft reports whether the client has closed the connection, or its side of it.
func HasLeft(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	left := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		left = err == nil && info.State != unix.BPF_TCP_ESTABLISHED
	})
	return err != nil || left
}
