package http2

import (
	"io"
	"net"
	"os"
	"time"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// body is a request's body while it comes. It holds at most streamWindow bytes that were not read,
// and all bodies of a connection hold at most the window of the connection. It implements
// [exchange.Body].
type body struct {
	stream *stream
	came   chan struct{}  // one token: something has come, or nothing more will
	entry  *account.Entry // what a body without owner holds; for the client's address

	// Guarded by conn.mu.
	length   int64       // as the head says; -1 if it does not
	total    int64       // bytes so far
	data     net.Buffers // not yet read; none is empty
	unread   int         // bytes in data
	room     int64       // of the stream's window: what the client may still send
	due      time.Time   // by when the whole body must have come; zero for never
	expects  bool        // the client waits for 100 Continue
	whole    bool        // the whole body has come
	owned    bool        // the handler counts what the body holds
	released bool
	err      error // what Read returns behind data; nil while more may come
}

func newBody(st *stream, length int64, expects bool) *body {
	b := &body{stream: st, came: make(chan struct{}, 1), length: length, room: streamWindow, expects: expects}
	cut := func() { st.reset(wire.ErrCodeEnhanceYourCalm) }
	b.entry = st.conn.server.Ledger.Open(st.Payer(), account.Bodies, cut)
	return b
}

// Hold implements exchange.Body. Each DATA frame counts when it comes.
func (b *body) Hold() bool { return true }

func (b *body) Own() {
	c := b.stream.conn
	c.mu.Lock()
	defer c.unlock()
	if b.owned {
		return
	}
	b.owned = true
	b.entry.Close()
	if !b.whole && !b.released {
		c.widenLocked()
		c.sendLocked()
	}
}

func (b *body) Due(at time.Time) {
	c := b.stream.conn
	c.mu.Lock()
	defer c.unlock()
	b.due = at
}

func (b *body) Read(p []byte) (int, error) {
	c := b.stream.conn
	b.stream.EndArrival()
	c.mu.Lock()
	defer c.unlock()
	if err := b.awaitLocked(); err != nil {
		return 0, err
	}
	n, _ := b.data.Read(p)
	b.unread -= n
	if !b.owned {
		b.entry.Add(-int64(n))
	}
	b.returnLocked(n)
	c.sendLocked()
	return n, nil
}

// leastKept is the least memory that is taken for what has come.
const leastKept = 512

// keep keeps what has come. It takes no more memory than the account says, but for leastKept: a slice that
// grows would take up to twice as much.
func (b *body) keep(data []byte) {
	b.unread += len(data)
	if last := len(b.data) - 1; last >= 0 && cap(b.data[last])-len(b.data[last]) >= len(data) {
		b.data[last] = append(b.data[last], data...)
	} else if len(data) > 0 {
		b.data = append(b.data, append(make([]byte, 0, max(leastKept, len(data))), data...))
	}
}

// awaitLocked waits until there are bytes to read, or returns why there are none. It gives the lock
// back while it waits.
func (b *body) awaitLocked() error {
	if len(b.data) > 0 {
		return nil
	}
	c := b.stream.conn
	stalled := time.NewTimer(time.Until(downstream.Stalled(b.due)))
	defer stalled.Stop()
	for len(b.data) == 0 && b.err == nil {
		b.continueLocked()
		c.unlock()
		select {
		case <-b.came:
			c.mu.Lock()
		case <-stalled.C:
			c.mu.Lock()
			return os.ErrDeadlineExceeded
		}
	}
	if len(b.data) == 0 {
		return b.err
	}
	return nil
}

// continueLocked tells a client that waits for it to send the body.
func (b *body) continueLocked() {
	if b.expects && !b.stream.answered {
		b.expects = false
		c := b.stream.conn
		c.writeHeadLocked(b.stream, 100, nil, false)
		c.sendLocked()
	}
}

// Release implements exchange.Body. It does not wait for the rest: END_STREAM of the response is
// followed by a reset.
func (b *body) Release() (whole bool) {
	c := b.stream.conn
	c.mu.Lock()
	defer c.unlock()
	b.releaseLocked()
	return b.whole
}

func (b *body) releaseLocked() {
	if !b.released {
		b.released = true
		b.err = exchange.ErrBodyReleased
		b.dropLocked()
	}
}

// breakLocked makes reads fail, unless the whole body has come.
func (b *body) breakLocked() {
	if b.err == nil {
		b.err = io.ErrUnexpectedEOF
		b.dropLocked()
	}
}

// dropLocked drops what has not been read.
func (b *body) dropLocked() {
	b.stream.conn.returnLocked(b.unread)
	b.data, b.unread = nil, 0
	b.entry.Close()
	b.wake()
}

func (b *body) wake() { signal(b.came) }

// signal gives c its token, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// returnLocked gives n bytes that have been read back to the client's windows.
func (b *body) returnLocked(n int) {
	c, st := b.stream.conn, b.stream
	c.returnLocked(n)
	if st.remoteEnd || st.closed || b.released {
		return
	}
	if free := streamWindow - b.room - int64(b.unread); free >= streamWindow/4 {
		b.room += free
		_ = c.framer.WriteWindowUpdate(st.id, uint32(free))
	}
}

// returnLocked gives n bytes of the connection's window back.
func (c *conn) returnLocked(n int) {
	c.unread -= int64(n)
	if c.unreturned += int64(n); c.unreturned >= c.receive/4 {
		_ = c.framer.WriteWindowUpdate(0, uint32(c.unreturned))
		c.unreturned = 0
	}
}

// widenLocked opens the connection's window to its full width, because a client on it is known.
func (c *conn) widenLocked() {
	if c.receive < connWindow {
		_ = c.framer.WriteWindowUpdate(0, uint32(connWindow-c.receive))
		c.receive = connWindow
	}
}

// readData handles a DATA frame.
func (c *conn) readData(f *wire.DataFrame) error {
	counted := c.countData(f)
	c.mu.Lock()
	defer c.unlock()
	err := c.spendDataLocked(f)
	if err == nil {
		err = c.dataLocked(f, counted)
	}
	c.reader.due = true
	return err
}

// countData counts the bytes of f for the client's address, unless their body has an owner or nobody
// reads it. It reports false if they may not be held. Another body may be cut for them, so the lock
// is not held.
func (c *conn) countData(f *wire.DataFrame) bool {
	c.mu.Lock()
	st := c.streams.find(f.StreamID)
	counts := st != nil && st.body != nil && !st.body.owned && st.body.err == nil
	c.mu.Unlock()
	return !counts || st.body.entry.Add(int64(len(f.Data())))
}

// spendDataLocked counts a DATA frame that brings little.
func (c *conn) spendDataLocked(f *wire.DataFrame) error {
	switch n := len(f.Data()); {
	case n >= crumb, f.StreamEnded():
		return nil
	case n == 0:
		return c.spendFrameLocked()
	}
	return c.spend(c.calm.crumbs)
}

// dataLocked handles a DATA frame. counted says that its bytes may be held.
func (c *conn) dataLocked(f *wire.DataFrame, counted bool) error {
	if c.idle(f.StreamID) {
		return wire.ConnectionError(wire.ErrCodeProtocol)
	}
	if c.unread+c.unreturned+int64(f.Length) > c.receive {
		return c.refuseLocked(f.StreamID, wire.ErrCodeFlowControl)
	}
	c.unread += int64(f.Length) // padding counts for the windows (RFC 9113, section 6.1)
	st := c.streams.find(f.StreamID)
	if st == nil || st.remoteEnd {
		c.returnLocked(int(f.Length))
		return c.strayLocked(f, st)
	}
	b := st.body // there is one: the stream's HEADERS had no END_STREAM
	if b.room -= int64(f.Length); b.room < 0 {
		c.returnLocked(int(f.Length))
		return c.refuseLocked(st.id, wire.ErrCodeFlowControl)
	}
	b.total += int64(len(f.Data()))
	if b.length >= 0 && b.total > b.length {
		c.returnLocked(int(f.Length))
		return c.refuseLocked(st.id, wire.ErrCodeProtocol)
	}
	switch {
	case b.err != nil: // nobody reads it
		c.returnLocked(int(f.Length))
	case !counted && !b.owned:
		c.returnLocked(int(f.Length))
		c.server.Held.Inc()
		return c.refuseLocked(st.id, wire.ErrCodeEnhanceYourCalm)
	default:
		b.keep(f.Data())
		b.returnLocked(int(f.Length) - len(f.Data()))
		b.wake()
	}
	if f.StreamEnded() {
		return c.remoteEndLocked(st)
	}
	return nil
}

// strayLocked handles DATA for a stream that takes none.
func (c *conn) strayLocked(f *wire.DataFrame, st *stream) error {
	if st != nil {
		return c.refuseLocked(st.id, wire.ErrCodeStreamClosed)
	}
	return c.lateLocked(f.StreamID, false)
}

// remoteEndLocked handles END_STREAM behind a body.
func (c *conn) remoteEndLocked(st *stream) error {
	b := st.body
	if b.length >= 0 && b.total != b.length {
		return c.refuseLocked(st.id, wire.ErrCodeProtocol)
	}
	st.remoteEnd = true
	b.whole = true
	if b.err == nil {
		b.err = io.EOF
	}
	b.wake()
	return nil
}
