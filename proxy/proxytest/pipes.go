package proxytest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Pipes is a listener whose connections are [net.Pipe]s, so that a client and a server meet within a
// bubble of testing/synctest. Its methods may be called from any goroutine.
type Pipes struct {
	conns  chan net.Conn // never closed
	closed chan struct{}
	close  func()
	dialed atomic.Int64
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
func (p *Pipes) Addr() net.Addr { return pipeAddr("example.com:1") } // as in httptest's certificate

// pipeAddr is the address of the listener, or of a client.
type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

// pipe is a listener's end of a connection.
type pipe struct {
	net.Conn
	client pipeAddr
}

func (p pipe) RemoteAddr() net.Addr { return p.client }

// Dial connects to the listener, whatever the address, from an address of its own. After Close the connection is refused.
func (p *Pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- pipe{server, pipeAddr(fmt.Sprintf("client:%d", p.dialed.Add(1)))}:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
