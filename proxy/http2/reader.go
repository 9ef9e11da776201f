package http2

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/downstream"
)

// reader is the connection as the framer reads it. It does not let the framer see a deadline that
// is not meant: the framer would lose its place within a frame.
type reader struct {
	conn *conn
	head fanout.MonotonicTime // when the current header block began; 0 for none
}

// errSilent is the error of a connection without a stream whose client sends nothing for too long.
var errSilent = errors.New("the client sends no request")

// errSlowHead is the error of a header block that does not end.
var errSlowHead = fmt.Errorf("a request's header does not end: %w", os.ErrDeadlineExceeded)

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for {
		n, err := r.conn.tls.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err := r.await(); err != nil {
			return 0, err
		}
	}
}

// await decides what a deadline means. It sets the next one, or returns why the connection ends.
func (r *reader) await() error {
	c := r.conn
	c.mu.Lock()
	defer c.unlock()
	now := fanout.MonotonicNow()
	since := func(t fanout.MonotonicTime) time.Duration { return time.Duration(now - t) }
	switch {
	case c.failed != nil:
		return c.failed
	case c.ending == ended:
		return errSilent
	case r.head != 0 && since(r.head) >= downstream.HeaderTimeout:
		return errSlowHead
	case c.lastID == 0 && since(c.idleFrom) >= downstream.HeaderTimeout,
		len(c.streams) == 0 && since(c.idleFrom) >= downstream.IdleTimeout:
		return errSilent
	}
	c.setDeadlineLocked(now)
	return nil
}

// setDeadlineLocked sets the deadline for what the client must send next, if there is one.
func (c *conn) setDeadlineLocked(now fanout.MonotonicTime) {
	if c.ending == ended {
		return // stopReading has set the last one
	}
	var until fanout.MonotonicTime
	switch {
	case c.reader.head != 0:
		until = c.reader.head + fanout.MonotonicTime(downstream.HeaderTimeout)
	case c.lastID == 0:
		until = c.idleFrom + fanout.MonotonicTime(downstream.HeaderTimeout)
	case len(c.streams) == 0:
		until = c.idleFrom + fanout.MonotonicTime(downstream.IdleTimeout)
	default:
		c.timed = false
		_ = c.tls.SetReadDeadline(time.Time{})
		return
	}
	c.timed = true
	_ = c.tls.SetReadDeadline(time.Now().Add(max(time.Duration(until-now), time.Millisecond)))
}

// timeHead sets the time limit of a header block that has begun, or takes it back.
func (c *conn) timeHead(begun bool) {
	now := fanout.MonotonicNow()
	c.reader.head = 0
	if begun {
		c.reader.head = now
	}
	c.mu.Lock()
	c.setDeadlineLocked(now)
	c.unlock()
}
