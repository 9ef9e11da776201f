package http2

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// reader is the connection as the framer reads it. It hides deadlines that do not end the connection
// from the framer, which cannot go on within a frame. It reads many small frames at once, and sends
// what they have made due before it waits for more.
type reader struct {
	conn *conn
	now  fanout.MonotonicTime // when something was last read
	due  bool                 // frames have been handled, and nothing has been sent since

	ahead  [frameHeaderLen]byte // what next has read
	buffer *[readAhead]byte     // what Read has read; nil for none, as with an idle connection
	unread []byte               // the rest of either
}

// readAhead is how many bytes of frames are read at once. A frame's payload that is longer is read
// in place.
const readAhead = 4 << 10

var readBuffers = sync.Pool{New: func() any { return new([readAhead]byte) }}

// next waits for the next frame. An idle connection waits here and not in the framer, without a
// buffer and with fewer calls on the stack. The runtime then halves the stack to 8 KiB, of which
// less than a quarter of 16 is used.
func (r *reader) next() error {
	if len(r.unread) > 0 {
		return nil
	}
	r.giveBack()
	n, err := r.read(r.ahead[:])
	if r.unread = r.ahead[:n]; n > 0 {
		return nil // the next read meets the error again
	}
	return err
}

// giveBack gives the buffer back. What is unread of it is lost.
func (r *reader) giveBack() {
	if r.buffer != nil {
		readBuffers.Put(r.buffer)
		r.buffer, r.unread = nil, nil
	}
}

var errSilent = errors.New("the client sends no request")

var errSlowHead = fmt.Errorf("a request's header does not end: %w", os.ErrDeadlineExceeded)

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if len(r.unread) == 0 {
		if len(p) >= readAhead {
			return r.read(p)
		}
		if r.buffer == nil {
			r.buffer = readBuffers.Get().(*[readAhead]byte)
		}
		n, err := r.read(r.buffer[:])
		if n == 0 {
			return 0, err
		}
		r.unread = r.buffer[:n]
	}
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	return n, nil
}

func (r *reader) read(p []byte) (int, error) {
	if r.due {
		r.due = false
		r.conn.flush()
	}
	for {
		n, err := r.conn.tls.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			r.now = fanout.MonotonicNow()
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
	switch {
	case c.failed != nil:
		return c.failed
	case c.ending == ended:
		return errSilent
	}
	now := fanout.MonotonicNow()
	if left, late := c.patienceLocked(now); late != nil && left <= 0 {
		return late
	}
	c.setDeadlineLocked(now)
	return nil
}

// patienceLocked returns how long the client may take to send what it must send next, and why the
// connection ends after that; nil if it must send nothing.
func (c *conn) patienceLocked(now fanout.MonotonicTime) (left time.Duration, late error) {
	switch {
	case c.headFrom != 0:
		return downstream.HeaderTimeout - time.Duration(now-c.headFrom), errSlowHead
	case c.lastID == 0:
		return downstream.HeaderTimeout - time.Duration(now-c.idleFrom), errSilent
	case len(c.streams) == 0:
		return downstream.IdleTimeout - time.Duration(now-c.idleFrom), errSilent
	}
	return 0, nil
}

// setDeadlineLocked sets the deadline for what the client must send next, if there is one.
func (c *conn) setDeadlineLocked(now fanout.MonotonicTime) {
	if c.ending == ended {
		return // stopReading has set the last one
	}
	var deadline time.Time
	left, late := c.patienceLocked(now)
	if c.timed = late != nil; c.timed {
		deadline = time.Now().Add(max(left, time.Millisecond))
	}
	_ = c.tls.SetReadDeadline(deadline)
}

// timeHead sets the time limit of a header block that has begun, or takes it back.
func (c *conn) timeHead(begun bool) {
	c.mu.Lock()
	defer c.unlock()
	now := fanout.MonotonicNow()
	c.headFrom = 0
	if begun {
		c.headFrom = now
	}
	c.setDeadlineLocked(now)
}
