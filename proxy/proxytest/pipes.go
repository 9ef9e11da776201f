package proxytest

import (
	"context"
	"net"
	"sync"
)

// Pipes is a listener whose connections are [net.Pipe]s, so that a client and a server meet within a
// bubble of testing/synctest. Its methods may be called from any goroutine.
type Pipes struct {
	conns  chan net.Conn // never closed
	closed chan struct{}
	close  func()
}

// NewPipes returns a listener.
func NewPipes() *Pipes {
	p := &Pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// Accept implements net.Listener.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error {
	p.close()
	return nil
}

// Addr implements net.Listener.
func (p *Pipes) Addr() net.Addr { return pipesAddr{} }

type pipesAddr struct{}

func (pipesAddr) Network() string { return "pipe" }
func (pipesAddr) String() string  { return "upstream:1" }

// Dial connects to the listener, whatever the address. After Close the connection is refused.
func (p *Pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
