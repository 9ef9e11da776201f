package upstream

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
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

// socketConn is a TCP connection whose system calls do not concern Go's scheduler: see downstream.Socket,
// which has Read and Write.
type socketConn struct {
	*net.TCPConn
	downstream.Socket
}

// quick returns c with fewer costs of reading and writing, if it is a TCP connection.
func quick(c net.Conn) net.Conn {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	socket, err := downstream.NewSocket(t)
	if err != nil {
		return c
	}
	return socketConn{t, socket}
}
