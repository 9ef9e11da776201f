package measure

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Sock is a TCP connection. At first it is one of package net, with a deadline for its TLS handshake and
// its first request. After Nonblocking it is outside the Go runtime's poller, and Read returns
// ErrWouldBlock when there is nothing. One goroutine with its own epoll can read thousands of such
// sockets: that takes one system call for a batch of events, where the poller takes two system calls and a
// goroutine switch for each event. The load shares its machine with the servers, and must be cheap.
//
// One goroutine at a time may read it, and one may write it.
type Sock struct {
	net.Conn // until Nonblocking; crypto/tls also asks it later
	FD       int
	drained  bool // Read has taken all bytes: no system call until Readable is called
}

// ErrWouldBlock means that there is nothing to read now. It is a temporary net.Error: after it,
// crypto/tls continues with the same record at the next Read.
var ErrWouldBlock = os.ErrDeadlineExceeded

// A Dialer holds the settings of a client's connection. The zero Dialer leaves all to the kernel.
type Dialer struct {
	From    netip.Addr // the client's address; one address has 28,000 ports
	Receive int        // receive buffer in bytes; 0 grows as needed
	Segment int        // largest TCP segment in bytes; loopback's own is 65,483
}

// tune applies d to a socket that is not connected yet.
func (d Dialer) tune(_, _ string, raw syscall.RawConn) (err error) {
	set := func(fd uintptr, level, option, value int) {
		if err == nil && value != 0 {
			err = unix.SetsockoptInt(int(fd), level, option, value)
		}
	}
	failed := raw.Control(func(fd uintptr) {
		set(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, d.Receive)
		set(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, d.Segment)
		if d.From.Is4() {
			set(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) // connect chooses the port
		}
	})
	return errors.Join(failed, err)
}

// Dial connects to addr, and gives the connection as much time again. It refuses any address but loopback,
// because this program makes load.
func (d Dialer) Dial(addr netip.AddrPort, timeout time.Duration) (*Sock, error) {
	if !addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("%v is not a loopback address: bench only loads servers on its own machine", addr)
	}
	dialer := net.Dialer{Timeout: timeout, KeepAlive: -1, Control: d.tune}
	if d.From.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.From, 0))
	}
	c, err := dialer.Dial("tcp", addr.String())
	if err != nil {
		return nil, err
	}
	return &Sock{Conn: c}, c.SetDeadline(time.Now().Add(timeout))
}

// Nonblocking takes the socket from the Go runtime's poller.
func (s *Sock) Nonblocking() error {
	raw, err := s.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { s.FD, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	return errors.Join(failed, err, s.Conn.Close())
}

// Readable must be called when epoll has reported the socket. The next Read asks the kernel again.
func (s *Sock) Readable() { s.drained = false }

func (s *Sock) Read(p []byte) (int, error) {
	if s.FD == 0 {
		return s.Conn.Read(p)
	}
	if s.drained {
		return 0, ErrWouldBlock
	}
	for {
		n, err := syscall.Read(s.FD, p)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			s.drained = true
			return 0, ErrWouldBlock
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(p) > 0:
			return 0, errors.New("the server closed the connection")
		}
		s.drained = n < len(p) // epoll is level-triggered and reports more bytes
		return n, nil
	}
}

// Write writes all of p. After Nonblocking it waits for room for at most 10 s.
func (s *Sock) Write(p []byte) (int, error) {
	if s.FD == 0 {
		return s.Conn.Write(p)
	}
	for done := 0; done < len(p); {
		n, err := syscall.Write(s.FD, p[done:])
		if err == syscall.EINTR || err == syscall.EAGAIN && s.awaitRoom() {
			continue
		}
		if err != nil {
			return done, os.NewSyscallError("write", err)
		}
		done += n
	}
	return len(p), nil
}

// awaitRoom waits until the socket can be written to, and reports whether it can.
func (s *Sock) awaitRoom() bool {
	const patience = 10_000 // ms
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.FD), Events: unix.POLLOUT}}, patience)
		if err != unix.EINTR {
			return n > 0
		}
	}
}

func (s *Sock) Close() error {
	if s.FD == 0 {
		return s.Conn.Close()
	}
	return syscall.Close(s.FD)
}
