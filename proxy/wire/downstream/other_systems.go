//go:build !linux

package downstream

import (
	"context"
	"errors"
	"net"
	"runtime"
	"syscall"
)

// Poller polls nothing on systems other than Linux: each client has a goroutine of its own.
type Poller struct{}

type pollable interface {
	readable()
	writable()
}

// NewPoller fails on Windows, which has no writes to a socket without waiting; see writev.
func NewPoller() (*Poller, error) {
	if runtime.GOOS == "windows" {
		return nil, errors.New("watchfan does not serve on Windows: run it on Linux")
	}
	return &Poller{}, nil
}

const pollIn, pollOut = 0, 0

func (*Poller) add(syscall.RawConn, pollable, uint32) error { return errors.ErrUnsupported }

func (*Poller) remove(syscall.RawConn, pollable) {}

func (*Poller) Run(ctx context.Context) { <-ctx.Done() }

// ReadTCPInfo fails on systems other than Linux.
func ReadTCPInfo(*net.TCPConn) (*TCPInfo, error) { return nil, errors.ErrUnsupported }

// HasLeft returns false on systems other than Linux. A read reports a client that has left.
func HasLeft(*net.TCPConn) bool { return false }
