package http2

import (
	"errors"
	"os"
	"time"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

var errLeft = errors.New("the client has left")

// stream is one request and its response, which may become a [watch]. It implements
// [exchange.StreamConn] for its request. An idle watch has no more than this, so its size is tested
// (TestStreamSize).
type stream struct {
	// Immutable.
	*conn       // has the methods of [exchange.Conn] that concern the connection
	body  *body // nil for a request without one

	// Of a watch. Immutable once it begins.
	source exchange.Stream
	slot   exchange.Slot // nil for none

	// Guarded by conn.mu, except for id, which is immutable.
	sending   *sending // nil for none, as with an idle watch
	window    int64    // what the client's window allows to send; may be negative
	id        uint32
	last      bool // END_STREAM follows what is pending
	ready     bool // in conn.ready
	answered  bool // the response has begun
	localEnd  bool // END_STREAM has been sent
	remoteEnd bool // END_STREAM has come
	handled   bool // the handler's goroutine has ended
	zombie    bool // counted in conn.zombies
	closed    bool // reset, or complete: it is not in conn.streams
	watching  bool // source is told when the client leaves
	carried   bool // the carrier's flush follows each round of a watch's writes
	over      bool // nothing works for the watch any more
}

// sending is what a stream has while something of it waits to be sent, or somebody for it. It is
// guarded by conn.mu.
type sending struct {
	pending [][]byte      // to be sent
	sent    int64         // bytes since the stream has a sending
	drained func(error)   // of a watch that is parked; nil for none
	gone    func()        // called on a goroutine of its own when the client leaves; nil for none
	due     time.Time     // when the response must have been sent; zero for no limit
	wrote   chan struct{} // one token: something has been sent, or cannot be; nil until somebody waits
	counts  bool          // it counts while it waits, because nothing else of the response does
}

const (
	// heldByAnswer is what a response takes that waits for its client: its goroutine and its stream. A
	// stranger's counts at once, and a known client's once it has waited for countedFrom.
	heldByAnswer = 16 << 10
	countedFrom  = 250 * time.Millisecond
)

// sendingLocked returns the sending of st, which it makes if there is none.
func (st *stream) sendingLocked() *sending {
	if st.sending == nil {
		st.sending = new(sending)
	}
	return st.sending
}

// pendingLocked returns what of st waits to be sent.
func (st *stream) pendingLocked() [][]byte {
	if st.sending == nil {
		return nil
	}
	return st.sending.pending
}

// openLocked creates the stream of a request. Only the reader calls it.
func (c *conn) openLocked(id uint32) *stream {
	st := &stream{conn: c, id: id, window: c.initial}
	if len(c.streams) == 0 {
		c.Rest(false)
	}
	c.streams = append(c.streams, st)
	c.working.Add(1)
	return st
}

// dropLocked closes a stream: frames for it are neither sent nor expected.
func (c *conn) dropLocked(st *stream) {
	if st.closed {
		return
	}
	st.closed = true
	if st.body != nil {
		st.body.breakLocked()
	}
	if s := st.sending; s != nil {
		s.pending = nil
		c.drainedLocked(st, errLeft)
		if s.gone != nil {
			c.queued = append(c.queued, s.gone)
			s.gone = nil
		}
	}
	if st.watching {
		st.watching = false
		c.queued = append(c.queued, st.source.Gone)
	}
	st.wake()
	if !st.handled {
		st.zombie = true
		c.zombies++
	}
	c.removeLocked(st)
}

// drainedLocked tells a watch that was parked that everything has been sent, or why it cannot be.
func (c *conn) drainedLocked(st *stream, err error) {
	if st.sending == nil || st.sending.drained == nil {
		return
	}
	done := st.sending.drained
	st.sending.drained = nil
	c.queued = append(c.queued, func() { done(err) })
}

// resetLocked closes a stream and tells the client.
func (c *conn) resetLocked(st *stream, code wire.ErrCode) {
	if !st.closed {
		c.dropLocked(st)
		c.sendResetLocked(st.id, code)
	}
}

func (c *conn) sendResetLocked(id uint32, code wire.ErrCode) {
	_ = c.framer.WriteRSTStream(id, code)
	c.replies++
	c.past.note(id, resetHere)
}

// sentEndLocked goes on after END_STREAM has been sent. A client that still sends its request is
// told to stop (RFC 9113, section 8.1).
func (c *conn) sentEndLocked(st *stream) {
	st.closed, st.watching = true, false
	if st.sending != nil {
		st.sending.gone = nil
	}
	if st.body != nil {
		st.body.releaseLocked()
	}
	if st.remoteEnd {
		c.past.note(st.id, completed)
	} else {
		c.sendResetLocked(st.id, wire.ErrCodeNo)
	}
	c.removeLocked(st)
}

func (c *conn) removeLocked(st *stream) {
	c.streams.remove(st)
	if len(c.streams) == 0 {
		c.restLocked()
	}
}

// finished is called when the goroutine of a stream's handler ends.
func (st *stream) finished() {
	c := st.conn
	c.mu.Lock()
	defer c.unlock()
	st.handled = true
	if st.zombie {
		c.zombies--
	}
	if st.body != nil {
		st.body.releaseLocked()
		c.sendLocked() // it may have given the client's window back
	}
}

// wake makes the goroutine go on that waits for st to send.
func (st *stream) wake() {
	if st.sending != nil && st.sending.wrote != nil {
		signal(st.sending.wrote)
	}
}

// begin sets when the response must have been sent, the zero time for no limit, and whether it counts
// while it waits for the client.
func (st *stream) begin(due time.Time, counts bool) {
	st.conn.mu.Lock()
	defer st.conn.unlock()
	s := st.sendingLocked()
	s.due, s.counts = due, counts
}

// send sends p, and END_STREAM behind it if last is set. It waits until the connection has taken
// everything. It may change p's outer slice.
func (st *stream) send(p [][]byte, last bool) error {
	if err := st.offer(p, last); err != nil {
		return err
	}
	return st.taken()
}

// offer is send without the wait.
func (st *stream) offer(p [][]byte, last bool) error {
	c := st.conn
	c.mu.Lock()
	defer c.unlock()
	if st.closed {
		return errLeft
	}
	st.setPendingLocked(p)
	st.last = last
	c.readyLocked(st)
	c.sendLocked()
	return nil
}

// taken waits until the connection has taken what was offered.
func (st *stream) taken() error {
	st.conn.mu.Lock()
	defer st.conn.unlock()
	return st.takenLocked()
}

func (st *stream) takenLocked() error {
	return st.awaitLocked(func() bool { return len(st.pendingLocked()) == 0 && !st.closed && !st.last || st.localEnd })
}

// setPendingLocked makes p what is to be sent.
func (st *stream) setPendingLocked(p [][]byte) {
	for len(p) > 0 && len(p[0]) == 0 {
		p = p[1:]
	}
	st.sendingLocked().pending = p
}

// awaitRoom waits until bytes of st can be sealed at once. Other streams may take all the room as
// it comes. When as much of them has been sent meanwhile as is sealed at a time, it is the turn of
// st: its bytes may be offered, and wait for room among those of the others.
func (st *stream) awaitRoom() error {
	c := st.conn
	c.mu.Lock()
	defer c.unlock()
	began := c.sent
	return st.awaitLocked(func() bool {
		return st.window > 0 && (!c.full && c.window > 0 || c.sent-began >= downstream.SealedAtOnce)
	})
}

// patience returns how long nothing may be sent, at most until the response is due.
func (s *sending) patience() time.Duration { return time.Until(downstream.Stalled(s.due)) }

// awaitLocked waits until done. It fails when the client leaves. It resets st when the response is
// due, and when nothing can be sent for too long: nothing of st if its window is closed, and nothing
// at all if st waits for its turn. In any case, what st was given to send is not used afterwards. It
// gives the lock back while it waits.
func (st *stream) awaitLocked(done func() bool) error {
	c := st.conn
	if done() {
		return nil
	}
	s := st.sendingLocked()
	if s.wrote == nil {
		s.wrote = make(chan struct{}, 1)
	}
	c.waiters++
	defer func() { c.waiters-- }()
	stalled := time.NewTimer(s.patience())
	defer stalled.Stop()
	var waits <-chan time.Time
	if s.counts {
		grace := time.Duration(0)
		if !c.Payer().Stranger {
			grace = countedFrom
		}
		uncounted := time.NewTimer(grace)
		defer uncounted.Stop()
		waits = uncounted.C
	}
	for all := c.sent; !st.closed && !done(); {
		sent := s.sent
		c.unlock()
		select {
		case <-s.wrote:
			c.mu.Lock()
		case <-waits:
			entry := c.server.Ledger.Open(c.Payer(), account.Answers, func() { st.reset(wire.ErrCodeEnhanceYourCalm) })
			defer entry.Close()
			ok := entry.Set(heldByAnswer) // without the lock: it may cut others
			c.mu.Lock()
			if !ok {
				c.server.Held.Inc()
				c.resetLocked(st, wire.ErrCodeEnhanceYourCalm)
				c.sendLocked()
				return errLeft
			}
		case <-stalled.C:
			c.mu.Lock()
			if done() {
				return nil
			}
			if st.window > 0 && c.sent != all && s.patience() > 0 {
				all = c.sent
				stalled.Reset(s.patience())
				continue
			}
			c.resetLocked(st, wire.ErrCodeInternal)
			c.sendLocked()
			return os.ErrDeadlineExceeded
		}
		if s.sent != sent {
			all = c.sent
			stalled.Reset(s.patience())
		}
	}
	if done() {
		return nil
	}
	return errLeft
}

// The connection, as [exchange.StreamConn] describes it.

func (st *stream) StreamID() uint32 { return st.id }

func (st *stream) Window() exchange.Window {
	c := st.conn
	c.mu.Lock()
	defer c.unlock()
	switch {
	case len(st.pendingLocked()) == 0 || c.full:
	case st.window <= 0:
		return exchange.StreamWindow
	case c.window <= 0:
		return exchange.ConnectionWindow
	}
	return exchange.OpenWindow
}

func (st *stream) Left() bool {
	c := st.conn
	c.mu.Lock()
	left := st.closed
	c.unlock()
	return left || c.Left()
}

func (st *stream) Break() { st.reset(wire.ErrCodeInternal) }

func (st *stream) EndArrival() {
	st.conn.EndArrival()
	st.arrival.Do(func() { close(st.arrived) })
}
