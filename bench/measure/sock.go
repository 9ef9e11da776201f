//go:build linux

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

// A Sock is a TCP connection outside the Go runtime's poller. One goroutine with its own epoll can
// read thousands of them. That takes one system call for a batch of events, where the poller takes
// two system calls and a goroutine switch for each event. The load shares its machine with the
// servers, and must be cheap.
//
// A Sock is blocking at first, with a timeout for each call: connecting, a TLS handshake and a
// request need that. After Nonblocking, Read returns ErrWouldBlock when there is nothing. One
// goroutine at a time may use it.
type Sock struct {
	FD      int
	async   bool // Nonblocking was called
	drained bool // Read has taken all bytes: no system call until Readable is called
}

// ErrWouldBlock means that there is nothing to read now. It is a temporary net.Error: after it,
// crypto/tls continues with the same record at the next Read.
var ErrWouldBlock net.Error = wouldBlock{}

// errClosed means that the server has closed the connection, without a last chunk.
var errClosed = errors.New("the server closed the connection")

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "would block" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// A Dialer holds the settings of a client's connection. The zero Dialer leaves all to the kernel.
type Dialer struct {
	From    netip.Addr // the client's address; one address has 28,000 ports
	Receive int        // receive buffer in bytes; 0 grows as needed
	Segment int        // largest TCP segment in bytes; loopback's own is 65,483
}

// tune applies d to a socket that is not connected yet.
func (d Dialer) tune(fd int) (err error) {
	set := func(level, option, value int) {
		if err == nil && value != 0 {
			err = syscall.SetsockoptInt(fd, level, option, value)
		}
	}
	set(syscall.SOL_SOCKET, syscall.SO_RCVBUF, d.Receive)
	set(syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, d.Segment)
	if d.From.Is4() && err == nil {
		const bindAddressNoPort = 24 // IP_BIND_ADDRESS_NO_PORT: connect chooses the port
		set(syscall.IPPROTO_IP, bindAddressNoPort, 1)
		if err == nil {
			err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: d.From.As4()})
		}
	}
	return err
}

// Dial connects to addr. It refuses any address but loopback, because this program makes load.
func (d Dialer) Dial(addr netip.AddrPort, timeout time.Duration) (*Sock, error) {
	if !addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("%v is not a loopback address: bench only loads servers on its own machine", addr)
	}
	var to syscall.Sockaddr = &syscall.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	family := syscall.AF_INET6
	if addr.Addr().Is4() {
		family, to = syscall.AF_INET, &syscall.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &Sock{FD: fd}
	if err = s.SetTimeout(timeout); err == nil {
		err = d.tune(fd)
	}
	if err == nil { // a request follows the handshake's last flight at once
		err = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	}
	if err == nil {
		err = connectSocket(fd, to)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("connect %v: %w", addr, err)
	}
	return s, nil
}

// SetTimeout bounds each call while the socket is blocking.
func (s *Sock) SetTimeout(d time.Duration) error {
	tv := syscall.NsecToTimeval(int64(d))
	err := syscall.SetsockoptTimeval(s.FD, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv)
	if err == nil {
		err = syscall.SetsockoptTimeval(s.FD, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &tv)
	}
	return err
}

// connectSocket connects a blocking socket. The runtime's own signals interrupt a connect with a
// timeout. The next connect continues to wait for the same connection.
func connectSocket(fd int, to syscall.Sockaddr) error {
	for {
		switch err := syscall.Connect(fd, to); err {
		case syscall.EINTR:
		case syscall.EISCONN:
			return nil
		default:
			return err
		}
	}
}

// Nonblocking makes Read return ErrWouldBlock from now on instead of waiting.
func (s *Sock) Nonblocking() error {
	s.async = true
	return syscall.SetNonblock(s.FD, true)
}

// Readable must be called when epoll has reported the socket. The next Read asks the kernel again.
func (s *Sock) Readable() { s.drained = false }

func (s *Sock) Read(p []byte) (int, error) {
	if s.drained {
		return 0, ErrWouldBlock
	}
	for {
		n, err := syscall.Read(s.FD, p)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN && !s.async:
			return 0, os.ErrDeadlineExceeded // SO_RCVTIMEO
		case err == syscall.EAGAIN:
			s.drained = true
			return 0, ErrWouldBlock
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(p) > 0:
			return 0, errClosed
		}
		s.drained = s.async && n < len(p) // epoll is level-triggered and reports more bytes
		return n, nil
	}
}

// Write writes all of p. After Nonblocking it waits for room for at most 10 s.
func (s *Sock) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n, err := syscall.Write(s.FD, p[done:])
		if err == syscall.EINTR || err == syscall.EAGAIN && s.async && s.awaitRoom() {
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

func (s *Sock) Close() error { return syscall.Close(s.FD) }

// The rest of net.Conn, for crypto/tls. These methods do nothing: SetTimeout bounds each call.

func (s *Sock) LocalAddr() net.Addr              { return nil }
func (s *Sock) RemoteAddr() net.Addr             { return nil }
func (s *Sock) SetDeadline(time.Time) error      { return nil }
func (s *Sock) SetReadDeadline(time.Time) error  { return nil }
func (s *Sock) SetWriteDeadline(time.Time) error { return nil }

// An Epoll is an epoll(7) instance, level-triggered.
type Epoll int

// NewEpoll returns an Epoll that watches nothing. Close must be called.
func NewEpoll() (Epoll, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	return Epoll(fd), os.NewSyscallError("epoll_create1", err)
}

// Add watches a file descriptor for events. Closing the descriptor ends that.
func (e Epoll) Add(fd int, events uint32) error { return e.control(syscall.EPOLL_CTL_ADD, fd, events) }

// Modify changes the events that a file descriptor is watched for.
func (e Epoll) Modify(fd int, events uint32) error {
	return e.control(syscall.EPOLL_CTL_MOD, fd, events)
}

func (e Epoll) control(op, fd int, events uint32) error {
	err := syscall.EpollCtl(int(e), op, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)})
	return os.NewSyscallError("epoll_ctl", err)
}

// Wait waits for events and returns them in the array given. It returns none after the timeout, in
// milliseconds, or after a signal. A negative timeout means no limit.
func (e Epoll) Wait(events []syscall.EpollEvent, timeout int) ([]syscall.EpollEvent, error) {
	n, err := syscall.EpollWait(int(e), events, timeout)
	if err == syscall.EINTR {
		err = nil
	}
	return events[:max(n, 0)], os.NewSyscallError("epoll_wait", err)
}

func (e Epoll) Close() error { return syscall.Close(int(e)) }
