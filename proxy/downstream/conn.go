package downstream

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/request"
)

// maxKept is how many bytes a client may send ahead while its connection is taken over: one
// request's head. A client that sends more is treated as gone.
const maxKept = 64 << 10

// LongAgo as a read deadline makes a blocked Read return at once.
var LongAgo = time.Unix(1, 0)

// Connections knows every client connection, whether fasthttp reads it or we have taken it over. So
// shutdown can wait for all of them and leave none behind.
type Connections struct {
	server *fasthttp.Server // immutable once serving
	maxAge time.Duration    // DownstreamOptions.MaxConnectionAge
	log    *slog.Logger

	emptyOnce sync.Once
	Empty     chan struct{} // closed once closing is set and open is empty; never sent on

	mu      sync.Mutex
	open    map[net.Conn]clientConn // keyed by the accepted connection
	closing bool                    // no new request is served on a kept-alive connection
}

// clientConn is what is known of a connection.
type clientConn struct {
	state fasthttp.ConnState
	old   fanout.MonotonicTime // when it is as old as one may get; 0 for never
}

func NewConnections(s *fasthttp.Server, maxAge time.Duration, log *slog.Logger) *Connections {
	cs := &Connections{server: s, maxAge: maxAge, log: log, open: make(map[net.Conn]clientConn), Empty: make(chan struct{})}
	s.ConnState = cs.stateChanged
	return cs
}

// stateChanged is fasthttp's ConnState hook.
func (cs *Connections) stateChanged(c net.Conn, state fasthttp.ConnState) {
	if state == fasthttp.StateIdle {
		// fasthttp leaves the last response's write deadline in place, which would fail a later
		// "100 Continue".
		_ = c.SetWriteDeadline(time.Time{})
	}
	c = Accepted(c)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch state {
	case fasthttp.StateClosed:
		cs.removeLocked(c)
	case fasthttp.StateNew, fasthttp.StateIdle:
		cs.setLocked(c, state)
		if cs.closing {
			_ = c.Close()
		}
	}
	// StateActive comes before the first byte of a connection's first request, so serving notes it
	// instead; and StateHijacked after hijack, when the connection's new owner may have closed it
	// already.
}

// setLocked notes what is happening on a connection. For a new one it decides how old it may get:
// up to a tenth more or less than maxAge. So connections that come together do not leave together.
func (cs *Connections) setLocked(c net.Conn, state fasthttp.ConnState) {
	known, ok := cs.open[c]
	if !ok && cs.maxAge > 0 {
		known.old = fanout.MonotonicOf(time.Now().Add(cs.maxAge - cs.maxAge/10 + rand.N(cs.maxAge/5+1)))
	}
	known.state = state
	cs.open[c] = known
}

// Serving notes that the handler is at work on c.
func (cs *Connections) Serving(c net.Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.setLocked(Accepted(c), fasthttp.StateActive)
}

// Last reports whether c is to carry no request after the present one.
func (cs *Connections) Last(c net.Conn) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.lastLocked(Accepted(c))
}

func (cs *Connections) lastLocked(c net.Conn) bool {
	old := cs.open[c].old
	return cs.closing || old != 0 && fanout.MonotonicNow() >= old
}

// Remaining is for how long a watch on c may last; ok is false if that is not limited.
func (cs *Connections) Remaining(c net.Conn) (d time.Duration, ok bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	old := cs.open[Accepted(c)].old
	return max(time.Until(old.Time()), 1), old != 0
}

// Count is how many connections there are.
func (cs *Connections) Count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.open)
}

func (cs *Connections) removeLocked(c net.Conn) {
	if _, ok := cs.open[c]; !ok {
		return
	}
	delete(cs.open, c)
	cs.checkEmptyLocked()
}

func (cs *Connections) checkEmptyLocked() {
	if cs.closing && len(cs.open) == 0 {
		cs.emptyOnce.Do(func() { close(cs.Empty) })
	}
}

// Hijack takes the connection of ctx from fasthttp once its handler has returned, without a
// response, and calls serve on a goroutine of its own. serve, or what it starts, must call Resume
// or Close in the end. If serve panics, the connection is closed. serve may use nothing of ctx.
func (cs *Connections) Hijack(ctx *fasthttp.RequestCtx, serve func(*Hijacked)) {
	c := Accepted(ctx.Conn())
	cs.mu.Lock()
	cs.setLocked(c, fasthttp.StateHijacked)
	cs.mu.Unlock()
	held := SlotOf(ctx)
	ctx.HijackSetNoResponse(true)
	// A new goroutine, because fasthttp's keeps the request context and a read buffer alive until
	// the handler returns.
	ctx.Hijack(func(c net.Conn) {
		h := cs.takeOver(c)
		h.slot = held
		go func() {
			defer request.Caught(cs.log, "connection taken over", h.Close)
			serve(h)
		}()
	})
}

// takeOver makes c, the connection given to a hijack handler, ours. It keeps what the client has
// already sent beyond the request, and drops fasthttp's buffer.
func (cs *Connections) takeOver(c net.Conn) *Hijacked {
	conn := c
	if u, ok := c.(interface{ UnsafeConn() net.Conn }); ok {
		conn = u.UnsafeConn()
	}
	h := &Hijacked{cs: cs, conn: Accepted(conn)}
	// With the deadline in the past, reads return what is buffered and then fail, without touching
	// the network.
	_ = conn.SetReadDeadline(LongAgo)
	for err := error(nil); err == nil && len(h.kept) < maxKept; {
		h.kept = slices.Grow(h.kept, 512)
		var n int
		n, err = c.Read(h.kept[len(h.kept):cap(h.kept)])
		h.kept = h.kept[:len(h.kept)+n]
	}
	if len(h.kept) == 0 {
		h.kept = nil
	}
	_ = conn.SetDeadline(time.Time{})
	return h
}

// BeginClosing closes the connections between two requests; the others end with their current one,
// or their first.
func (cs *Connections) BeginClosing() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closing {
		return
	}
	cs.closing = true
	cs.closeLocked(fasthttp.StateIdle)
	cs.checkEmptyLocked()
}

// CloseSilent closes the connections that have yet to bring their first request.
func (cs *Connections) CloseSilent() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closeLocked(fasthttp.StateNew)
}

func (cs *Connections) closeLocked(state fasthttp.ConnState) {
	for c, known := range cs.open {
		if known.state == state {
			_ = c.Close()
		}
	}
}

// CloseAll closes what is left and reports how many connections that were.
func (cs *Connections) CloseAll() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		_ = c.Close()
	}
	return len(cs.open)
}

// slot is what a request holds while it lasts. Release gives it up, and may be called more than
// once.
type slot interface{ Release() }

// noSlot is the slot of a request that holds nothing.
type noSlot struct{}

func (noSlot) Release() {}

// slotKey is where a request's context has its slot.
type slotKey struct{}

// HoldSlot has s released when the request of ctx has ended: by the handler's caller, or by whoever
// takes its connection over.
func HoldSlot(ctx *fasthttp.RequestCtx, s slot) { ctx.SetUserValue(slotKey{}, s) }

func SlotOf(ctx *fasthttp.RequestCtx) slot {
	if s, ok := ctx.UserValue(slotKey{}).(slot); ok {
		return s
	}
	return noSlot{}
}

// Hijacked is a client connection that fasthttp has given up to us. Conn may be written by one
// goroutine while another is in WaitRead; the other methods are for the goroutine that owns the
// connection.
type Hijacked struct {
	cs   *Connections
	conn net.Conn // as accepted
	slot slot     // released by Resume and Close

	stopped atomic.Bool // set by StopRead: WaitRead is to return, or not to begin

	reading sync.Mutex // held while WaitRead reads; guards kept
	kept    []byte     // what the client has sent beyond the current request; at most about maxKept
}

// Conn returns the connection as it was accepted: an *arrivingConn or a *tls.Conn.
func (h *Hijacked) Conn() net.Conn { return h.conn }

// WaitRead reads the connection, keeping what it reads for Resume, until StopRead is called or the
// client is gone; then, and only then, it calls onGone. It blocks, for as long as the request
// lasts: call it on a goroutine that has nothing else to do. As in net/http, a client that closes
// its sending side is gone.
func (h *Hijacked) WaitRead(onGone func()) {
	if !h.readUntilGone() {
		onGone()
	}
}

// readUntilGone reports whether it was stopped, rather than left by the client.
func (h *Hijacked) readUntilGone() (stopped bool) {
	h.reading.Lock()
	defer h.reading.Unlock()
	for !h.stopped.Load() {
		if len(h.kept) >= maxKept {
			return false
		}
		h.kept = slices.Grow(h.kept, 16)
		n, err := h.conn.Read(h.kept[len(h.kept):cap(h.kept)])
		h.kept = h.kept[:len(h.kept)+n]
		if err != nil {
			return errors.Is(err, os.ErrDeadlineExceeded) && h.stopped.Load()
		}
	}
	return true
}

// StopRead makes WaitRead return and waits until it has. Afterwards only the caller reads the
// connection.
func (h *Hijacked) StopRead() {
	h.stopped.Store(true)
	_ = h.conn.SetReadDeadline(LongAgo)
	h.reading.Lock()
	defer h.reading.Unlock()
	_ = h.conn.SetReadDeadline(time.Time{})
}

// Read returns what the client has already sent, then reads the connection. StopRead must have been
// called.
func (h *Hijacked) Read(p []byte) (int, error) {
	if len(h.kept) > 0 {
		n := copy(p, h.kept)
		h.kept = h.kept[n:]
		return n, nil
	}
	return h.conn.Read(p)
}

// Resume gives the connection back to the server for the client's next request, or closes it if it
// may carry none. The response must be complete. Resume blocks until the connection is closed or
// taken over again.
func (h *Hijacked) Resume() {
	h.StopRead()
	h.slot.Release()
	_ = h.conn.SetDeadline(time.Time{})
	h.cs.mu.Lock()
	last := h.cs.lastLocked(h.conn)
	if !last {
		h.cs.setLocked(h.conn, fasthttp.StateIdle)
	}
	h.cs.mu.Unlock()
	if last {
		h.Close()
		return
	}
	c := h.conn
	if len(h.kept) > 0 {
		c = withKept(h.conn, h.kept)
	}
	if err := h.cs.server.ServeConn(c); err == fasthttp.ErrConcurrencyLimit {
		h.Close() // the one error that stateChanged is not told of
	}
}

// Close closes the connection. It may be called from any goroutine, and more than once.
func (h *Hijacked) Close() {
	_ = h.conn.Close()
	h.slot.Release()
	h.cs.mu.Lock()
	defer h.cs.mu.Unlock()
	h.cs.removeLocked(h.conn)
}

// keptConn replays kept bytes before it reads on.
type keptConn struct {
	net.Conn
	kept []byte
}

// keptTLSConn is keptConn over TLS, so that fasthttp still sees a TLS connection.
type keptTLSConn struct {
	tlsConn
	kept []byte
}

type tlsConn interface {
	net.Conn
	Handshake() error
	ConnectionState() tls.ConnectionState
}

func withKept(c net.Conn, kept []byte) net.Conn {
	if t, ok := c.(tlsConn); ok {
		return &keptTLSConn{tlsConn: t, kept: kept}
	}
	return &keptConn{Conn: c, kept: kept}
}

func (c *keptConn) Read(p []byte) (int, error)    { return readKept(c.Conn, &c.kept, p) }
func (c *keptTLSConn) Read(p []byte) (int, error) { return readKept(c.tlsConn, &c.kept, p) }

func readKept(c net.Conn, kept *[]byte, p []byte) (int, error) {
	if len(*kept) == 0 {
		return c.Read(p)
	}
	n := copy(p, *kept)
	if *kept = (*kept)[n:]; len(*kept) == 0 {
		*kept = nil
	}
	return n, nil
}

// Accepted returns the connection that the listener gave, under whatever replays kept bytes on top.
func Accepted(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *keptConn:
		return c.Conn
	case *keptTLSConn:
		return c.tlsConn
	}
	return c
}

// Left returns a func that reports whether the client of c has left, as far as can be told without reading.
func Left(c net.Conn) func() bool {
	return func() bool { return HasLeft(TCPConn(Accepted(c))) }
}
