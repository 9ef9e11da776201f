package http2

import (
	"io"
	"net"
	"time"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// ending is how far the end of a connection has come.
type ending int

const (
	lasting  ending = iota
	warned          // GOAWAY says that the client should open no streams; those that come are served
	refusing        // the second GOAWAY names the last stream; the connection closes when all have ended
	leaving         // all have ended, and the socket has a rest
	ended
)

// lastFramesTimeout is how long a client may take to answer the first GOAWAY, or to close the
// connection after the last.
const lastFramesTimeout = time.Second

// end ends the connection because of err, which the reader has met.
func (c *conn) end(err error) {
	code, broken := codeOf(err)
	c.mu.Lock()
	if c.failed == nil && (broken || err == errSilent && c.ending < refusing) {
		_ = c.framer.WriteGoAway(c.servedID, code, nil)
	}
	c.sendLocked()
	c.failLocked(net.ErrClosed)
	c.out.Finish()
	c.unlock()
	if broken {
		c.server.broken.Inc()
	}
	if broken || err == errSilent {
		c.linger()
	}
}

// linger lets the client read the last frames and close the connection. A connection that is closed
// with bytes unread is reset, and its client may lose what was sent before.
func (c *conn) linger() {
	_ = c.tls.CloseWrite()
	tcp := c.TCP()
	_ = tcp.SetReadDeadline(time.Now().Add(lastFramesTimeout))
	_, _ = io.CopyN(io.Discard, tcp, maxControl)
}

// failLocked ends all streams. No frame is sent afterwards.
func (c *conn) failLocked(err error) {
	if c.failed != nil {
		return
	}
	c.failed, c.ending = err, ended
	for len(c.streams) > 0 {
		c.dropLocked(c.streams[len(c.streams)-1])
	}
	c.ready = nil
	c.stopReading()
}

// fail ends the connection at once, and abort after a panic.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.unlock()
	c.failLocked(err)
}

func (c *conn) abort() { c.fail(exchange.ErrPanicked) }

// stopReading makes the reader return.
func (c *conn) stopReading() { _ = c.tls.SetReadDeadline(time.Now()) }

// goAway makes the client open no further streams here. What is open goes on. It is called when the
// proxy stops. RFC 9113, section 6.8: streams that the client has opened before it sees the first
// GOAWAY are served.
func (c *conn) goAway() {
	c.locked(func() {
		c.goAwayLocked()
		c.sendLocked()
	})
}

// goAwayLocked queues the first GOAWAY.
func (c *conn) goAwayLocked() {
	if c.ending != lasting {
		return
	}
	c.ending = warned
	_ = c.framer.WriteGoAway(maxWindow, wire.ErrCodeNo, nil)
	_ = c.framer.WritePing(false, goAwayPing)
	time.AfterFunc(lastFramesTimeout, c.refuseNew)
}

// goAwayPing is answered when the client has seen the first GOAWAY.
var goAwayPing = [8]byte{'g', 'o', 'i', 'n', 'g'}

// refuseNew sends the second GOAWAY. Later streams are ignored. The client sends their requests
// again on another connection.
func (c *conn) refuseNew() {
	c.locked(func() {
		if c.ending == warned {
			c.ending = refusing
			_ = c.framer.WriteGoAway(c.servedID, wire.ErrCodeNo, nil)
			c.sendLocked()
		}
	})
}

// checkEndedLocked ends a connection that refuses new streams and has none left, once the client
// has been sent everything. A client that does not read is cut off after lastBytesTimeout.
func (c *conn) checkEndedLocked() {
	switch {
	case c.ending != refusing && c.ending != leaving || len(c.streams) > 0:
	case !c.full:
		c.ending = ended
		c.stopReading()
	case c.ending == refusing:
		c.ending = leaving
		time.AfterFunc(lastBytesTimeout, func() { c.fail(errUnread) })
	}
}
