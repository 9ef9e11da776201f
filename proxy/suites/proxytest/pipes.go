package proxytest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Pipes is a listener whose connections are pairs of [net.Pipe]s, so that a client and a server meet
// within a bubble of testing/synctest. Its methods may be called from any goroutine.
type Pipes struct {
	conns  chan net.Conn // never closed
	closed chan struct{}
	close  func()
	dialed atomic.Int64
	others sync.Map // from addresses to *Pipes
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

// At returns another listener. From now on Dial connects to it at this address.
func (p *Pipes) At(address string) *Pipes {
	other := NewPipes()
	p.others.Store(address, other)
	return other
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

// Dial connects to the listener, whatever the address, unless it is that of another one; see At. Each
// client has an address of its own. After Close the connection is refused.
func (p *Pipes) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if other, ok := p.others.Load(address); ok {
		return other.(*Pipes).Dial(ctx, network, address)
	}
	down, fromServer := net.Pipe()
	up, fromClient := net.Pipe()
	select {
	case p.conns <- &pipe{Conn: up, out: fromServer, peer: pipeAddr(fmt.Sprintf("client:%d", p.dialed.Add(1)))}:
		return &pipe{Conn: down, out: fromClient, peer: p.Addr()}, nil
	case <-p.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipe is one end of a connection, whose directions end one by one.
type pipe struct {
	net.Conn          // that is read
	out      net.Conn // that is written
	peer     net.Addr
}

func (p *pipe) RemoteAddr() net.Addr { return p.peer }

func (p *pipe) Write(b []byte) (int, error) { return p.out.Write(b) }

// CloseWrite ends the direction to the other end.
func (p *pipe) CloseWrite() error { return p.out.Close() }

func (p *pipe) Close() error { return errors.Join(p.out.Close(), p.Conn.Close()) }

func (p *pipe) SetWriteDeadline(at time.Time) error { return p.out.SetWriteDeadline(at) }

func (p *pipe) SetDeadline(at time.Time) error {
	return errors.Join(p.SetReadDeadline(at), p.SetWriteDeadline(at))
}
