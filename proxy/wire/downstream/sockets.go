package downstream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenShared listens on a TCP address with SO_REUSEPORT: other programs of the same user may
// listen there too, and the kernel shares new connections out among them.
func ListenShared(address string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return errors.Join(cerr, err)
	}}
	return lc.Listen(context.Background(), "tcp", address)
}

// PortFree reports whether nobody listens on a TCP address. It binds a socket and does not listen on
// it, so it is in nobody's way: another program may begin to listen there meanwhile.
func PortFree(address *net.TCPAddr) (bool, error) {
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: address.Port, Addr: [16]byte(address.IP.To16())})
	if ip := address.IP.To4(); ip != nil {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte(ip)}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = unix.Bind(fd, to)
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return false, nil
	}
	return err == nil, os.NewSyscallError("bind", err)
}

// readSocket reads what has come on a socket. If nothing has, it waits, or returns
// [os.ErrDeadlineExceeded].
func readSocket(raw syscall.RawConn, p []byte, wait bool) (n int, err error) {
	rerr := raw.Read(func(fd uintptr) bool {
		for {
			if n, err = sysRead(fd, p); err != syscall.EINTR {
				return !wait || err != syscall.EAGAIN
			}
		}
	})
	switch {
	case rerr != nil:
		return 0, rerr
	case err == syscall.EAGAIN:
		return 0, os.ErrDeadlineExceeded
	case err != nil:
		return 0, err
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// writeSocket writes p to a socket, and waits for room.
func writeSocket(raw syscall.RawConn, p []byte) (n int, err error) {
	werr := raw.Write(func(fd uintptr) bool {
		for n < len(p) {
			var more int
			if more, err = sysWrite(fd, p[n:]); err == syscall.EAGAIN {
				return false
			} else if err != nil && err != syscall.EINTR {
				return true
			}
			n += more
		}
		err = nil
		return true
	})
	if werr != nil {
		err = werr
	}
	return n, err
}
