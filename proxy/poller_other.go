//go:build !linux

package proxy

import (
	"context"
	"errors"
	"syscall"
)

// poller would wait for the sockets of many clients on one goroutine; here each client has its own.
type poller struct{}

type pollable interface {
	readable()
	writable()
}

func newPoller() (*poller, error) { return &poller{}, nil }

func (*poller) add(syscall.RawConn, pollable) error { return errors.ErrUnsupported }

func (*poller) remove(syscall.RawConn, pollable) {}

func (*poller) run(ctx context.Context) { <-ctx.Done() }
