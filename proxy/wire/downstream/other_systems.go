//go:build !linux

package downstream

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// Poller polls nothing on systems other than Linux: each client has a goroutine of its own.
type Poller struct{}

type pollable interface {
	readable()
	writable()
}

func NewPoller() (*Poller, error) { return &Poller{}, nil }

const pollIn, pollOut = 0, 0

func (*Poller) add(syscall.RawConn, pollable, uint32) error { return errors.ErrUnsupported }

func (*Poller) remove(syscall.RawConn, pollable) {}

func (*Poller) Run(ctx context.Context) { <-ctx.Done() }

// ReadTCPInfo fails on systems other than Linux.
func ReadTCPInfo(*net.TCPConn) (*TCPInfo, error) { return nil, errors.ErrUnsupported }

// HasLeft returns false on systems other than Linux. A read reports a client that has left.
func HasLeft(*net.TCPConn) bool { return false }

// writev writes as much of bufs as the non-blocking socket fd takes. It returns the rest, which
// shares memory with bufs.
func writev(fd uintptr, bufs [][]byte) (rest [][]byte, err error) {
	for len(bufs) > 0 {
		if len(bufs[0]) == 0 {
			bufs = bufs[1:]
			continue
		}
		n, err := syscall.Write(int(fd), bufs[0])
		switch err {
		case nil:
			bufs = advance(bufs, n)
		case syscall.EINTR:
		case syscall.EAGAIN:
			return bufs, nil
		default:
			return bufs, err
		}
	}
	return nil, nil
}

// nothingCame reports whether a read would wait.
func nothingCame(fd uintptr) bool {
	_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN
}
