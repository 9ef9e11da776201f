package http2

import (
	"time"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// readHead handles HEADERS and the CONTINUATION frames behind it: a request or trailers.
func (c *conn) readHead(f *wire.HeadersFrame) error {
	id, last := f.StreamID, f.StreamEnded()
	self := f.HasPriority() && f.Priority.StreamDep == id
	defer c.heads.reset()
	defer c.dropHead()
	if err := c.readBlock(f); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.unlock()
	err := c.headLocked(id, last, self)
	if err == nil {
		c.sendLocked()
	}
	return err
}

// readBlock reads and decodes a header block into c.heads.
func (c *conn) readBlock(f *wire.HeadersFrame) error {
	if !f.HeadersEnded() {
		c.timeHead(true)
		defer c.timeHead(false)
	}
	fragment, ends := f.HeaderBlockFragment(), f.HeadersEnded()
	for frames, bytes := 0, 0; ; frames++ {
		bytes += len(fragment)
		if bytes > maxBlock || frames > maxContinuations || !c.holdHead(bytes+c.heads.bytes) {
			return errCalm
		}
		if _, err := c.heads.hpack.Write(fragment); err != nil {
			return wire.ConnectionError(wire.ErrCodeCompression)
		}
		if ends {
			break
		}
		next, err := c.framer.ReadFrame()
		if err != nil {
			return err
		}
		more := next.(*wire.ContinuationFrame) // the framer lets nothing else follow
		fragment, ends = more.HeaderBlockFragment(), more.HeadersEnded()
	}
	if c.heads.hpack.Close() != nil {
		return wire.ConnectionError(wire.ErrCodeCompression)
	}
	return nil
}

// holdHead counts a long head for the connection's payer. It reports whether the head may be held.
func (c *conn) holdHead(bytes int) bool {
	if bytes <= usualHead {
		return true
	}
	if c.held == nil {
		c.held = c.server.Ledger.Open(c.Payer(), account.Heads, func() { go c.fail(errCalm) })
	}
	return c.held.Set(int64(bytes))
}

// dropHead forgets a head that has become no request.
func (c *conn) dropHead() {
	if c.held != nil {
		c.held.Close()
		c.held = nil
	}
}

// headLocked handles the head that has been decoded.
func (c *conn) headLocked(id uint32, last, dependsOnItself bool) error {
	switch st := c.streams.find(id); {
	case c.failed != nil:
		return c.failed // nothing would end a stream that is opened now
	case id%2 == 0:
		return wire.ConnectionError(wire.ErrCodeProtocol)
	case st != nil:
		return c.trailersLocked(st, last)
	case id <= c.lastID:
		return c.lateLocked(id, true)
	}
	c.lastID = id
	if c.ending >= refusing {
		c.past.note(id, resetHere) // the second GOAWAY has told the client so
		return c.spendWasted()
	}
	c.servedID = id
	switch {
	case len(c.streams)+c.zombies >= c.server.maxStreams:
		c.server.tooMany.Inc()
		return c.refuseLocked(id, wire.ErrCodeRefusedStream)
	case dependsOnItself, !c.heads.over && c.heads.checkPseudo() != "":
		c.server.Malformed.Inc()
		return c.refuseLocked(id, wire.ErrCodeProtocol)
	}
	return c.requestLocked(id, last)
}

// trailersLocked handles the fields behind a request's body. They are dropped, as in HTTP/1.1.
func (c *conn) trailersLocked(st *stream, last bool) error {
	if st.remoteEnd {
		return c.refuseLocked(st.id, wire.ErrCodeStreamClosed)
	}
	if !last || c.heads.malformed != "" || c.heads.has != [pseudoFields]bool{} {
		return c.refuseLocked(st.id, wire.ErrCodeProtocol)
	}
	return c.remoteEndLocked(st)
}

// lateLocked handles HEADERS or DATA for a stream that is closed. What was under way when the stream
// was reset here is ignored. DATA is also ignored if the stream is not remembered: many uploads may
// be answered early at the same time.
func (c *conn) lateLocked(id uint32, head bool) error {
	past := c.past.of(id)
	switch {
	case !head && (past == resetHere || past == forgotten):
		return nil
	case past == resetHere:
		return c.spendWasted()
	case past == forgotten:
		return wire.ConnectionError(wire.ErrCodeProtocol)
	case past == completed && head:
		return wire.ConnectionError(wire.ErrCodeStreamClosed)
	}
	return c.refuseLocked(id, wire.ErrCodeStreamClosed)
}

// requestLocked opens the stream of the head that has been decoded, and starts its handler.
func (c *conn) requestLocked(id uint32, last bool) error {
	x := exchange.Take()
	expects, wrong := c.heads.readHead(x)
	if last && x.ContentLength > 0 {
		x.Give()
		c.server.Malformed.Inc()
		return c.refuseLocked(id, wire.ErrCodeProtocol)
	}
	st := c.openLocked(id)
	x.Conn, x.Received = st, time.Now()
	switch {
	case last:
		st.remoteEnd = true
		x.ContentLength = 0
	default:
		st.body = newBody(st, x.ContentLength, expects)
		if x.ContentLength != 0 {
			x.Body = st.body
		}
	}
	if c.Last() {
		c.goAwayLocked()
	}
	held := c.held
	c.held = nil
	go st.serve(x, wrong, held)
	if st.Arriving() {
		c.queued = append(c.queued, func() { <-c.arrived })
	}
	return nil
}

// serve answers a request. It runs on a goroutine of its own, and returns when the response has
// been written or is left to a shard.
func (st *stream) serve(x *exchange.Exchange, wrong *exchange.Refusal, head *account.Entry) {
	if head != nil {
		defer head.Close()
	}
	c, r := st.conn, &responder{stream: st, method: x.Method}
	lasts := false // a shard works for the stream
	defer func() {
		if !lasts && r.slot != nil {
			r.slot.Release()
		}
		st.finished()
		if !lasts {
			c.working.Done()
		}
	}()
	defer st.EndArrival()
	defer c.server.Guard.Caught("response", func() { st.reset(wire.ErrCodeInternal) })
	st.handle(x, wrong)
	r.slot = x.Slot
	lasts = r.respond(x)
}

// handle calls the handler for a request whose head is good, and rejects other requests. A panic of
// the handler ends the request only.
func (st *stream) handle(x *exchange.Exchange, wrong *exchange.Refusal) {
	s := st.conn.server
	defer s.Guard.Caught("request", func() { s.Refuse(x, exchange.Panicked) })
	defer st.EndArrival() // the response may wait for a WINDOW_UPDATE, and then the reader must read
	if wrong != nil {
		s.Malformed.Inc()
		s.Refuse(x, wrong)
		return
	}
	s.Handle(x)
	x.Continue()
}

// reset ends a stream that cannot be completed.
func (st *stream) reset(code wire.ErrCode) {
	c := st.conn
	c.mu.Lock()
	defer c.unlock()
	c.resetLocked(st, code)
	c.sendLocked()
}
