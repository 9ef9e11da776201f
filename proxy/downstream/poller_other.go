//go:build !linux

package downstream

import (
	"context"
	"errors"
	"syscall"
)

// Poller would wait for the sockets of many clients on one goroutine; here each client has its own.
type Poller struct{}

type pollable interface {
	readable()
	writable()
}

func NewPoller() (*Poller, error) { return &Poller{}, nil }

func (*Poller) add(syscall.RawConn, pollable) error { return errors.ErrUnsupported }

func (*Poller) remove(syscall.RawConn, pollable) {}

func (*Poller) Run(ctx context.Context) { <-ctx.Done() }
