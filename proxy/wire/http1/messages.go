package http1

import (
	"bytes"
	"errors"
	"sync"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
	"github.com/watchfan/watchfan/proxy/wire/websocket"
)

// connection is a sink of package downstream.
type connection interface {
	fanout.Sink
	fanout.Evictee
	fanout.Keeper
	Begin(head []byte, read func()) error
	Read(p []byte) (int, error)
	ReadAgain(read func())
}

// messages writes a watch's events as messages of a WebSocket. It implements [fanout.Sink] and has
// no goroutine. A shard writes messages while a reader writes answers to the client, and each frame
// must leave whole. What comes while the connection drains waits for that: at most one batch and the
// newest answers. A client that sends pings and does not read therefore costs no more than one that
// does not read.
type messages struct {
	connection
	form exchange.Messages

	mu       sync.Mutex
	draining bool        // the connection has a rest
	batch    [][]byte    // a batch behind the rest; nil for none
	answers  []byte      // frames behind both; nil for none
	drained  func(error) // the shard's, of Drain
	err      error       // of the last drain
	over     bool        // nothing follows
	closed   bool        // the client has been sent CLOSE
}

var errMessagesOver = errors.New("the WebSocket has been closed")

// batches holds empty batches.
var batches = sync.Pool{New: func() any { return new(websocket.Batch) }}

func (m *messages) Write(chunks [][]byte) (blocked bool, err error) {
	b := batches.Get().(*websocket.Batch)
	defer func() {
		b.Reset(blocked)
		batches.Put(b)
	}()
	if err := b.Frame(m.form, chunks); err != nil {
		return false, err
	}
	m.mu.Lock()
	if m.draining && !m.over { // answers are being drained
		m.batch = append(m.batch, b.Slices...)
		m.mu.Unlock()
		return true, nil
	}
	blocked, err = m.writeLocked(b.Slices)
	m.mu.Unlock()
	if blocked {
		m.connection.Drain(m.goOn)
	}
	return blocked, err
}

// writeLocked writes slices to the connection, which has no rest.
func (m *messages) writeLocked(slices [][]byte) (blocked bool, err error) {
	if m.over {
		return false, errMessagesOver
	}
	blocked, err = m.connection.Write(slices)
	m.draining = blocked && err == nil
	return m.draining, err
}

// Drain implements fanout.Sink. Write has begun the drain.
func (m *messages) Drain(done func(error)) {
	m.mu.Lock()
	if m.draining {
		m.drained = done
		m.mu.Unlock()
		return
	}
	err := m.err
	m.mu.Unlock()
	done(err)
}

// goOn is called when the connection has no rest any more, or is broken because of err.
func (m *messages) goOn(err error) {
	m.mu.Lock()
	m.draining = false
	if next := m.waitingLocked(); err == nil && len(next) > 0 {
		var blocked bool
		if blocked, err = m.writeLocked(next); blocked {
			m.mu.Unlock()
			m.connection.Drain(m.goOn)
			return
		}
	}
	done := m.drained
	m.drained, m.err = nil, err
	m.mu.Unlock()
	if done != nil {
		done(err)
	}
}

// waitingLocked takes what waits behind the rest.
func (m *messages) waitingLocked() [][]byte {
	next := m.batch
	if m.answers != nil {
		next = append(next, m.answers)
	}
	m.batch, m.answers = nil, nil
	return next
}

// answer sends frames to the client; over says that nothing follows them. While the connection
// drains, newer answers replace older ones (RFC 6455, section 5.5.3). Then a CLOSE is not sent: a
// client that does not read would not see it.
func (m *messages) answer(frames []byte, over bool) {
	m.mu.Lock()
	if m.draining && !m.over && !over {
		m.answers = bytes.Clone(frames)
	}
	if m.draining || m.over {
		m.over = m.over || over
		m.mu.Unlock()
		return
	}
	blocked, err := m.writeLocked([][]byte{frames})
	m.over, m.closed = over, over && err == nil && !blocked
	m.mu.Unlock()
	if blocked {
		m.connection.Drain(m.goOn)
	}
}

// End implements fanout.Sink. It sends CLOSE behind a complete watch, unless that has been done.
func (m *messages) End(reason fanout.Reason, complete bool) {
	m.mu.Lock()
	if complete && !m.draining && !m.over {
		blocked, err := m.writeLocked([][]byte{[]byte(websocket.CloseNormal)})
		m.closed = err == nil && !blocked
	}
	m.over = true
	m.batch, m.answers, m.drained = nil, nil, nil
	closed := m.closed
	m.mu.Unlock()
	m.connection.End(reason, closed)
}
