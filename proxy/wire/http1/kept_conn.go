package http1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// keptConn is a connection as fasthttp sees it. It returns the kept bytes first, then reads the
// connection. If no byte comes in time, the connection has ended: fasthttp then closes it, and
// writes no 408 to a client that has sent nothing. The goroutine that serves the connection owns it.
type keptConn struct {
	net.Conn // as the listener accepted it

	kept  []byte    // sent already, and not read yet
	begun bool      // the client has sent something
	broke bool      // the last read brought nothing
	due   time.Time // when the response must have been written; zero for no limit

	size  int            // of headSizes: the server that reads it
	entry *account.Entry // of that server's buffers; nil for the first server
	head  []byte         // what has been read of a head, as much as that server takes
	past  bool           // the head has been read, or its beginning is not known
	again bool           // a request has been answered
	taken bool           // another server has the connection: nothing is written to it, and it is not closed

	// broken is called when fasthttp has closed the connection in place of handing it over, as when an
	// earlier response cannot be written that it has kept for the next one. nil if it hands nothing over.
	broken func()

	deadline time.Time // of reads of a head, as last set
	by       time.Time // when a head must have come that another server has begun to read; zero for none
}

// keptTLSConn is a keptConn over TLS. fasthttp tells it by these methods.
type keptTLSConn struct {
	keptConn
	tlsConn // the same connection
}

type tlsConn interface {
	Handshake() error
	ConnectionState() tls.ConnectionState
}

// withKept returns c, which returns the kept bytes first. There may be none.
func withKept(c net.Conn, kept []byte) net.Conn {
	k := keptConn{Conn: c, kept: kept}
	if t, ok := c.(tlsConn); ok {
		return &keptTLSConn{k, t}
	}
	return &k
}

func keptOf(c net.Conn) *keptConn {
	if t, ok := c.(*keptTLSConn); ok {
		return &t.keptConn
	}
	return c.(*keptConn)
}

// accepted returns the connection as the listener accepted it, without the wrapper for fasthttp.
func accepted(c net.Conn) net.Conn { return keptOf(c).Conn }

// SetWriteDeadline is the connection's, limited by when the response is due. The zero time is no
// deadline.
func (c *keptConn) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() && !c.due.IsZero() && c.due.Before(t) {
		t = c.due
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetReadDeadline is the connection's. A head has no more time because another server goes on with it. Behind
// a head, two goroutines may call it: one that reads the body, and one that releases it.
func (c *keptConn) SetReadDeadline(t time.Time) error {
	if c.past {
		return c.Conn.SetReadDeadline(t)
	}
	if !c.by.IsZero() && (t.IsZero() || c.by.Before(t)) {
		t = c.by
	}
	c.deadline = t
	return c.Conn.SetReadDeadline(t)
}

// Write and Close leave a connection alone that another server has.
func (c *keptConn) Write(p []byte) (int, error) {
	if c.taken {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *keptConn) Close() error {
	if c.taken {
		return nil
	}
	return c.Conn.Close()
}

func (c *keptConn) Read(p []byte) (n int, err error) {
	if c.endedBare() {
		return 0, errBareLineFeed
	}
	if len(c.kept) > 0 {
		n = copy(p, c.kept)
		if c.kept = c.kept[n:]; len(c.kept) == 0 {
			c.kept = nil
		}
	} else if n, err = c.Conn.Read(p); n > 0 {
		err = nil // it comes again
	}
	c.begun, c.broke = c.begun || n > 0, err != nil
	if !c.begun && errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	c.note(p[:n])
	return n, err
}

type frontListener struct{ net.Listener }

func (l frontListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return withKept(c, nil), nil
}
