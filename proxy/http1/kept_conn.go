package http1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/watchfan/watchfan/proxy/account"
)

// keptConn is a connection as fasthttp sees it. It returns the kept bytes first, then reads the
// connection. If no byte comes in time, the connection has ended: fasthttp then closes it, and
// writes no 408 to a client that has sent nothing.
type keptConn struct {
	net.Conn
	replay
}

// keptTLSConn is keptConn over TLS. fasthttp still sees a TLS connection.
type keptTLSConn struct {
	tlsConn
	replay
}

type tlsConn interface {
	net.Conn
	Handshake() error
	ConnectionState() tls.ConnectionState
}

// withKept returns c, which returns the kept bytes first. There may be none.
func withKept(c net.Conn, kept []byte) net.Conn {
	if t, ok := c.(tlsConn); ok {
		return &keptTLSConn{tlsConn: t, replay: replay{kept: kept}}
	}
	return &keptConn{Conn: c, replay: replay{kept: kept}}
}

// SetWriteDeadline is the connection's, limited by when the response is due.
func (c *keptConn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(c.limited(t)) }
func (c *keptTLSConn) SetWriteDeadline(t time.Time) error {
	return c.tlsConn.SetWriteDeadline(c.limited(t))
}

// SetReadDeadline is the connection's. A head has no more time because another server goes on with it.
func (c *keptConn) SetReadDeadline(t time.Time) error {
	return c.Conn.SetReadDeadline(c.headLimited(t))
}
func (c *keptTLSConn) SetReadDeadline(t time.Time) error {
	return c.tlsConn.SetReadDeadline(c.headLimited(t))
}

func (c *keptConn) Read(p []byte) (int, error)    { return c.read(c.Conn, p) }
func (c *keptTLSConn) Read(p []byte) (int, error) { return c.read(c.tlsConn, p) }

// replay is what a client has sent already, whether it has sent anything, and by when it must have
// read. The goroutine that serves the connection owns it.
type replay struct {
	kept  []byte
	begun bool
	due   time.Time // of the response that is being written; zero for no limit

	size  int            // of headSizes: the server that reads it
	entry *account.Entry // of that server's buffers; nil for the first server
	head  []byte         // what has been read of a head, as much as that server takes
	past  bool           // the head has been read
	taken bool           // another server has the connection: nothing is written to it, and it is not closed

	deadline time.Time // of reads, as last set
	by       time.Time // when a head must have come that another server has begun to read; zero for none
}

// headLimited notes a deadline of reads, and returns it or by, whichever is earlier.
func (r *replay) headLimited(t time.Time) time.Time {
	if !r.past && !r.by.IsZero() && (t.IsZero() || r.by.Before(t)) {
		t = r.by
	}
	r.deadline = t
	return t
}

// replayOf returns the replay of a connection as fasthttp sees it; nil for another one.
func replayOf(c net.Conn) *replay {
	switch c := c.(type) {
	case *keptConn:
		return &c.replay
	case *keptTLSConn:
		return &c.replay
	}
	return nil
}

// setDue sets when the response must have been written.
func (r *replay) setDue(at time.Time) { r.due = at }

// limited returns the earlier of a deadline and due. The zero time is no deadline.
func (r *replay) limited(deadline time.Time) time.Time {
	if deadline.IsZero() || r.due.IsZero() || deadline.Before(r.due) {
		return deadline
	}
	return r.due
}

// Write and Close leave a connection alone that another server has.
func (c *keptConn) Write(p []byte) (int, error) {
	if c.taken {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *keptTLSConn) Write(p []byte) (int, error) {
	if c.taken {
		return len(p), nil
	}
	return c.tlsConn.Write(p)
}

func (c *keptConn) Close() error {
	if c.taken {
		return nil
	}
	return c.Conn.Close()
}

func (c *keptTLSConn) Close() error {
	if c.taken {
		return nil
	}
	return c.tlsConn.Close()
}

func (r *replay) read(c net.Conn, p []byte) (n int, err error) {
	if r.endedBare() {
		return 0, errBareLineFeed
	}
	if len(r.kept) > 0 {
		n = copy(p, r.kept)
		if r.kept = r.kept[n:]; len(r.kept) == 0 {
			r.kept = nil
		}
	} else if n, err = c.Read(p); !r.begun && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	r.begun = r.begun || n > 0
	r.note(p[:n])
	return n, err
}

// frontListener accepts connections for fasthttp.
type frontListener struct{ net.Listener }

// Accept implements net.Listener.
func (l frontListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return withKept(c, nil), nil
}

// accepted returns the connection as the listener accepted it, without the wrapper for fasthttp.
func accepted(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *keptConn:
		return c.Conn
	case *keptTLSConn:
		return c.tlsConn
	}
	return c
}
