package fallback

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// tryEvery is the time between two looks whether the port is free. A look costs three system calls.
const tryEvery = 100 * time.Millisecond

// takeover is the [net.Listener] of a port that another program listens on. It listens there itself from when
// nobody does until release. Accept blocks meanwhile.
type takeover struct {
	log     *slog.Logger
	address *net.TCPAddr
	open    context.Context // ends with Close
	close   context.CancelFunc

	mu   sync.Mutex
	held net.Listener // nil while another has the port
}

func newTakeover(log *slog.Logger) *takeover {
	t := &takeover{log: log}
	t.open, t.close = context.WithCancel(context.Background())
	return t
}

// listen makes t the listener of an address. It does not open the port yet, but fails if that can
// never succeed.
func (t *takeover) listen(address string) (net.Listener, error) {
	var err error
	if t.address, err = net.ResolveTCPAddr("tcp", address); err != nil {
		return nil, err
	}
	_, err = downstream.PortFree(t.address)
	return t, err
}

func (t *takeover) Accept() (net.Conn, error) {
	for {
		ln, err := t.hold()
		if err != nil {
			return nil, err
		}
		c, err := ln.Accept()
		if err == nil || !errors.Is(err, net.ErrClosed) || t.open.Err() != nil {
			return c, err
		}
	}
}

// hold returns the listener of the port, when nobody else has one.
func (t *takeover) hold() (net.Listener, error) {
	for t.open.Err() == nil {
		if ln, err := t.try(); ln != nil || err != nil {
			return ln, err
		}
		exchange.Sleep(t.open, tryEvery)
	}
	return nil, net.ErrClosed
}

// try returns the listener of the port, nil if another program has it.
func (t *takeover) try() (net.Listener, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held != nil || t.open.Err() != nil {
		return t.held, nil
	}
	free, err := downstream.PortFree(t.address)
	if err != nil || !free {
		return nil, err
	}
	if t.held, err = downstream.ListenShared(t.address.String()); err == nil {
		t.log.Info("Took the port, because nobody listened on it", "address", t.address.String())
	}
	return t.held, err
}

// holds reports whether t has the port. t may be nil.
func (t *takeover) holds() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held != nil
}

// release leaves the port to the other program. t may be nil.
func (t *takeover) release() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held != nil {
		_ = t.held.Close()
		t.held = nil
	}
}

func (t *takeover) Close() error {
	t.close()
	t.release()
	return nil
}

func (t *takeover) Addr() net.Addr { return t.address }
