package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// PortReservation holds a TCP port of 127.0.0.1 without listening on it. A
// child listens on it with SO_REUSEPORT, and while the child is down the port
// refuses connections but stays ours. Otherwise another process could take it
// between two runs of the child; worse, a client that keeps dialling a free
// port in the ephemeral range sooner or later connects to itself.
type PortReservation struct {
	Port   int
	socket int
}

// reservePort reserves port, or any free one if port is zero.
func reservePort(port int) (*PortReservation, error) {
	if port != 0 {
		// SO_REUSEPORT would also share the port with another devcluster.
		// Listening without it shows whether anyone has it.
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("port %d is in use", port)
		}
		if err != nil {
			return nil, err
		}
		l.Close()
	}
	r, err := bindPort(port)
	if err != nil {
		return nil, fmt.Errorf("reserve port %d: %w", port, err)
	}
	return r, nil
}

func bindPort(port int) (*PortReservation, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	r := &PortReservation{socket: socket}
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return nil, errors.Join(os.NewSyscallError("setsockopt", err), r.Release())
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), r.Release())
	}
	addr, err := unix.Getsockname(socket)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("getsockname", err), r.Release())
	}
	r.Port = addr.(*unix.SockaddrInet4).Port
	return r, nil
}

// Release gives the port back.
func (r *PortReservation) Release() error { return unix.Close(r.socket) }
