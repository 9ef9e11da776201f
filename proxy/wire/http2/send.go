package http2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

const frameHeaderLen = 9

// turn is how many bytes a stream may send before another stream's turn.
const turn = 64 << 10

var errUnread = errors.New("the client does not read answers to its frames")

// sendLocked seals and writes what is due, as much as the socket takes: first the control frames,
// then DATA of the streams that are ready, in turns. It seals about SealedAtOnce bytes, because a
// shard may wait for the lock. The rest stays as shared slices, and another goroutine goes on.
func (c *conn) sendLocked() {
	if !c.full && c.failed == nil {
		c.fillLocked()
		c.takeControlLocked() // what the ends of streams have queued
		if c.out.Due() > 0 {
			c.flushLocked()
		}
	}
	if !c.full && c.failed == nil && !c.going && c.sendableLocked() {
		c.going = true
		c.working.Go(c.goOn)
	}
	if c.full && c.failed == nil && (c.replies > maxReplies || c.control.Len() > maxControl) {
		c.server.broken.Inc()
		c.failLocked(errUnread)
		return
	}
	c.checkEndedLocked()
}

// flushLocked seals what is due, and writes as much as the socket takes.
func (c *conn) flushLocked() {
	full, err := c.out.Flush()
	if err != nil {
		c.failLocked(err)
		return
	}
	c.full = full
}

// sendableLocked reports whether a stream has something that may be sent.
func (c *conn) sendableLocked() bool {
	for _, st := range c.ready {
		if c.window > 0 || len(st.pendingLocked()) == 0 {
			return true
		}
	}
	return false
}

// goOn sends until nothing is left or the socket is full. It gives the lock back behind what is sealed
// at a time, because a shard may wait for it.
func (c *conn) goOn() {
	for more := true; more; runtime.Gosched() {
		more = false
		c.locked(func() {
			c.sendLocked()
			c.going = !c.full && c.failed == nil && c.sendableLocked()
			more = c.going
		})
	}
}

// fillLocked moves what may be sent to out.
func (c *conn) fillLocked() {
	c.takeControlLocked()
	for stuck := 0; stuck < len(c.ready) && c.out.Due() < downstream.SealedAtOnce; {
		st := c.ready[0]
		c.ready[0] = nil
		c.ready = c.ready[1:]
		st.ready = false
		if st.closed {
			continue // it has been reset
		}
		if c.sendTurnLocked(st) {
			stuck = 0
		} else if st.ready {
			stuck++ // it waits for the connection's window
		}
	}
}

func (c *conn) takeControlLocked() {
	if c.control.Len() > 0 {
		c.out.Add(c.control.Bytes())
		c.control.Reset()
		c.replies = 0
	}
	if c.control.Cap() > 4<<10 {
		c.control = bytes.Buffer{}
	}
}

// sendTurnLocked gives st one turn, and reports whether st has sent anything. If more is to be
// sent, st is queued for another turn.
func (c *conn) sendTurnLocked(st *stream) bool {
	pending := st.pendingLocked()
	rest, sent := c.addDataLocked(st, pending, turn)
	if len(rest) == 0 {
		if st.sending != nil {
			st.sending.pending = nil
		}
		c.sentAllLocked(st)
		return true
	}
	st.sending.pending = rest
	if sent > 0 || len(rest) < len(pending) {
		st.wake()
	}
	c.readyLocked(st)
	return sent > 0
}

// readyLocked queues st for a turn, if it has something to send and its own window is open.
func (c *conn) readyLocked(st *stream) {
	some := len(st.pendingLocked()) > 0
	if st.ready || some && st.window <= 0 || !some && (!st.last || st.localEnd) {
		return
	}
	st.ready = true
	c.ready = append(c.ready, st)
}

// addDataLocked adds DATA frames of at most most bytes of p to out, as the windows allow. The frame
// that completes the stream carries END_STREAM. It returns the rest of p, whose outer slice it
// changes, and the number of bytes that it has added.
func (c *conn) addDataLocked(st *stream, p [][]byte, most int) (rest [][]byte, sent int) {
	for len(p) > 0 {
		n := min(c.frameSize, most-sent, size(p, c.frameSize))
		n = int(min(int64(n), st.window, c.window))
		if n <= 0 {
			break
		}
		st.window -= int64(n)
		c.window -= int64(n)
		sent += n
		last := st.last && size(p, n+1) == n
		c.addFrameHeaderLocked(st, n, last)
		p = c.addPayloadLocked(p, n)
	}
	c.sent += int64(sent)
	if st.sending != nil {
		st.sending.sent += int64(sent)
	}
	return p, sent
}

// addPayloadLocked adds n bytes of p to out, and returns the rest of p. It changes p's outer slice.
func (c *conn) addPayloadLocked(p [][]byte, n int) [][]byte {
	for len(p) > 0 && (n > 0 || len(p[0]) == 0) {
		part := p[0][:min(n, len(p[0]))]
		c.out.Add(part)
		n -= len(part)
		if p[0] = p[0][len(part):]; len(p[0]) == 0 {
			p[0] = nil
			p = p[1:]
		}
	}
	return p
}

// addFrameHeaderLocked adds the header of a DATA frame (RFC 9113, section 4.1).
func (c *conn) addFrameHeaderLocked(st *stream, length int, last bool) {
	h := c.header[:]
	binary.BigEndian.PutUint32(h, uint32(length)<<8|uint32(wire.FrameData))
	h[4] = 0
	if last {
		h[4] = byte(wire.FlagDataEndStream)
		st.localEnd = true
	}
	binary.BigEndian.PutUint32(h[5:], st.id)
	c.credit = min(c.credit+length, mostCredit)
	if length >= ownFrame {
		c.credit += 2 * bytesPerFrame
	}
	c.out.Add(h)
}

// sentAllLocked goes on after everything pending of st has been sent.
func (c *conn) sentAllLocked(st *stream) {
	if st.last && !st.localEnd {
		c.addFrameHeaderLocked(st, 0, true)
	}
	c.drainedLocked(st, nil)
	st.wake()
	if st.localEnd {
		c.sentEndLocked(st)
	} else if st.watching {
		st.sending = nil
	}
}

// size returns the number of bytes of p, or a number that is not smaller than most.
func size(p [][]byte, most int) (n int) {
	for _, b := range p {
		if n += len(b); n >= most {
			break
		}
	}
	return n
}
