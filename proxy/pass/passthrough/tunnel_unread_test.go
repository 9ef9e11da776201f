package passthrough

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// unread is the connection of a client that sends nothing more and does not read.
type unread struct{ net.Conn }

func (unread) Read([]byte) (int, error) { return 0, io.EOF }
func (unread) CloseWrite() error        { return nil }

// A WebSocket ends when one of its directions has, also if its client does not read.
func TestUnreadWebSocketEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := net.Pipe()
		up, server := net.Pipe()
		go func() { _, _ = io.WriteString(server, "\x81\x02hi") }()
		f := &followed{Upgraded: unread{client}}
		tunnel := &tunnel{client: f, up: up, frames: f, ended: make(chan error, 2), answered: make(chan struct{})}
		p := &Forwarder{}
		go func() {
			defer close(tunnel.answered)
			p.join(tunnel, f, up)
		}()
		synctest.Wait() // within the message
		go p.join(tunnel, up, f)
		began := time.Now()
		if tunnel.wait(t.Context()); time.Since(began) != closeGrace {
			t.Errorf("it ended after %s", time.Since(began))
		}
	})
}
