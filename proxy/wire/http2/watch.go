package http2

import (
	"errors"
	"sync"
	"time"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// watch is a stream whose response has no end. It implements [fanout.Sink] for a shard, and has no
// goroutine. Write adds to what its connection sends in the shard's round; see [fanout.Carrier].
type watch stream

func (w *watch) stream() *stream { return (*stream)(w) }

// watch sends the head of the stream of x, and hands over its sink. It reports false if the client
// has left.
func (r *responder) watch(x *exchange.Exchange) (began bool) {
	w := (*watch)(r.stream)
	w.source, w.slot = x.Response.Stream, r.slot
	defer func() {
		if !began { // the client has left, or begin panics
			w.conn.mu.Lock()
			w.over = true
			w.conn.unlock()
			w.source.End(fanout.Gone, false)
		}
	}()
	if !w.begin(x) {
		return false
	}
	w.source.Begin(w)
	return true
}

// begin sends the head of the stream of x, and gives x back.
func (w *watch) begin(x *exchange.Exchange) bool {
	defer x.Give()
	defer x.Written()
	c, st, resp := w.conn, w.stream(), &x.Response
	c.mu.Lock()
	defer c.unlock()
	if st.closed {
		return false
	}
	st.headLocked(resp, -1, false)
	st.watching = true
	if resp.First != "" {
		first, _, _, _ := framing.NextPayload([][]byte{[]byte(resp.First)})
		st.setPendingLocked([][]byte{first})
		c.readyLocked(st)
	}
	c.sendLocked()
	return true
}

// Carrier implements fanout.Carried. Without a call of it, each write is sent at once.
func (w *watch) Carrier() *fanout.Carrier {
	c := w.conn
	c.mu.Lock()
	defer c.unlock()
	w.carried = true
	return c.carrier
}

func (w *watch) Write(batch [][]byte) (blocked bool, err error) {
	c := w.conn
	defer c.server.Guard.Caught("watch's write", func() {
		c.abort() // half a frame may be due
		blocked, err = false, exchange.ErrPanicked
	})
	c.mu.Lock()
	defer c.unlock()
	if w.closed {
		return false, errLeft
	}
	scratch := payloads.Get().(*[][]byte)
	events, ok := appendPayloads((*scratch)[:0], batch)
	if !ok {
		return false, errNoChunks
	}
	w.writeLocked(events)
	clear(events)
	*scratch = events
	payloads.Put(scratch)
	if st := w.stream(); len(st.pendingLocked()) > 0 {
		c.readyLocked(st)
		return true, nil
	}
	if !w.carried || c.out.Due() >= downstream.SealedAtOnce {
		c.sendLocked()
	}
	return false, nil
}

// writeLocked adds as much of events to what the connection sends as may be sent now. Copies of the
// other slices are pending then.
func (w *watch) writeLocked(events [][]byte) {
	c, st := w.conn, w.stream()
	if !c.full && len(c.ready) == 0 && len(st.pendingLocked()) == 0 {
		events, _ = c.addDataLocked(st, events, maxWindow)
	}
	if len(events) > 0 {
		s := st.sendingLocked()
		s.pending = append(s.pending, events...)
	}
}

// payloads holds memory for the payloads of one batch.
var payloads = sync.Pool{New: func() any { return new([][]byte) }}

// appendPayloads appends the payloads of a batch to events.
func appendPayloads(events, batch [][]byte) ([][]byte, bool) {
	for len(batch) > 0 {
		first, second, rest, ok := framing.NextPayload(batch)
		if !ok {
			return nil, false
		}
		if batch = rest; len(first) > 0 {
			events = append(events, first)
		}
		if len(second) > 0 {
			events = append(events, second)
		}
	}
	return events, true
}

func (w *watch) Drain(done func(error)) {
	c := w.conn
	c.mu.Lock()
	defer c.unlock()
	switch st := w.stream(); {
	case st.closed:
		c.queued = append(c.queued, func() { done(errLeft) })
	case len(st.pendingLocked()) == 0:
		c.queued = append(c.queued, func() { done(nil) })
	default:
		st.sending.drained = done
	}
}

func (w *watch) Kept(bytes int64) (ok bool) {
	defer w.conn.server.Guard.Caught("watch's account", func() { ok = false })
	return w.source.Keep(bytes)
}

func (w *watch) Evicted(st fanout.State) {
	defer w.conn.server.Guard.Caught("watch's eviction", nil) // the watch ends in any case
	w.source.Evict(st)
}

// lastBytesTimeout is how long a client may take to accept the last bytes of a watch.
const lastBytesTimeout = 5 * time.Second

func (w *watch) End(reason fanout.Reason, complete bool) {
	complete, over := w.end(complete)
	if over {
		return
	}
	go func() {
		defer w.conn.working.Done()
		defer w.conn.server.Guard.Caught("watch's end", nil)
		if w.slot != nil {
			defer w.slot.Release()
		}
		w.source.End(reason, complete)
	}()
}

// end ends the stream, properly if complete is set. It reports whether the client gets everything,
// and whether nothing worked for the watch before.
func (w *watch) end(complete bool) (whole, over bool) {
	c, st := w.conn, w.stream()
	defer c.server.Guard.Caught("watch's last write", c.abort)
	c.mu.Lock()
	defer c.unlock()
	over = st.over
	st.over, st.watching = true, false
	if st.sending != nil {
		st.sending.drained = nil
	}
	switch {
	case st.closed:
		return false, over
	case !complete:
		c.resetLocked(st, wire.ErrCodeInternal)
		c.sendLocked()
		return false, over
	}
	st.last = true
	if c.Last() {
		c.goAwayLocked() // the client resumes elsewhere
	}
	if len(st.pendingLocked()) == 0 && !c.full {
		c.takeControlLocked() // GOAWAY goes before the end
		c.sentAllLocked(st)
		if !w.carried { // otherwise it leaves in the shard's round
			c.sendLocked()
		}
		return true, over
	}
	c.readyLocked(st)
	time.AfterFunc(lastBytesTimeout, w.giveUp)
	return true, over
}

// giveUp resets a stream whose client has not accepted its last bytes in time.
func (w *watch) giveUp() {
	defer w.conn.server.Guard.Caught("watch's last write", w.conn.abort)
	w.stream().reset(wire.ErrCodeInternal)
}

var errNoChunks = errors.New("the shard has written no whole chunks")
