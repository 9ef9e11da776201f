package http1

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// maxKept is how many bytes a client may send ahead while its connection is taken over: the head of a
// usual request. A client that sends more is treated as gone. Those that pipeline are rare, and none
// does so behind a watch.
const maxKept = 4 << 10

// longAgo is a read deadline that makes a blocked Read return at once.
var longAgo = time.Unix(1, 0)

// hijacked is a client connection taken over from fasthttp. One goroutine may write it while
// another is in waitRead. The other methods are for the goroutine that owns the connection.
type hijacked struct {
	server *Server
	client *downstream.Conn
	conn   net.Conn      // as the listener accepted it
	slot   exchange.Slot // released by resume and Close; nil for none

	stopped atomic.Bool // set by stopRead: waitRead returns, or does not begin

	reading sync.Mutex // held while waitRead reads; guards the rest
	kept    []byte     // bytes of the client beyond the current request
}

// hijack takes the connection of ctx from fasthttp once its handler has returned, without a
// response. It calls serve on a goroutine of its own. serve, or work that it starts, must call
// resume or Close in the end. If serve panics, the connection is closed. serve must not use ctx or
// x. It is also called if the connection has broken meanwhile: then all that it writes fails.
func (s *Server) hijack(ctx *fasthttp.RequestCtx, x *exchange.Exchange, serve func(*hijacked)) {
	held, client := x.Slot, x.Conn.(*downstream.Conn)
	run := func(h *hijacked) {
		h.slot = held
		// A new goroutine, because fasthttp's goroutine keeps the request context and a read buffer
		// alive until the handler returns.
		go func() {
			defer s.Guard.Caught("connection taken over", h.Close)
			serve(h)
		}()
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) { run(s.takeOver(c, client)) })
	read := keptOf(ctx.Conn())
	read.broken = func() { run(&hijacked{server: s, client: client, conn: read.Conn}) }
}

// takeOver takes over c, the connection given to a hijack handler. It keeps the bytes that the
// client has sent beyond the request, and drops fasthttp's buffer.
func (s *Server) takeOver(c net.Conn, client *downstream.Conn) *hijacked {
	conn := c.(interface{ UnsafeConn() net.Conn }).UnsafeConn()
	h := &hijacked{server: s, client: client, conn: accepted(conn)}
	// With a deadline in the past, reads return the buffered bytes and then fail. They do not touch
	// the network.
	_ = conn.SetReadDeadline(longAgo)
	if kept, _ := io.ReadAll(c); len(kept) > 0 {
		h.kept = kept
	}
	_ = conn.SetDeadline(time.Time{})
	if len(h.kept) > maxKept {
		_ = h.conn.Close()
	}
	return h
}

// waitRead reads the connection until stopRead is called, or the client is gone, and then calls
// onGone. It keeps the bytes for resume. It blocks for as long as the request lasts, and needs a
// goroutine of its own. As in net/http, a client that closes its sending side is gone.
func (h *hijacked) waitRead(onGone func()) {
	if !h.readUntilGone() {
		onGone()
	}
}

// readUntilGone reports whether it was stopped; otherwise the client is gone.
func (h *hijacked) readUntilGone() (stopped bool) {
	h.reading.Lock()
	defer h.reading.Unlock()
	for !h.stopped.Load() {
		if len(h.kept) > maxKept {
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

// stopRead makes waitRead return and waits for that. Afterwards only the caller reads the
// connection.
func (h *hijacked) stopRead() {
	h.stopped.Store(true)
	_ = h.conn.SetReadDeadline(longAgo)
	h.reading.Lock()
	defer h.reading.Unlock()
	_ = h.conn.SetReadDeadline(time.Time{})
}

// resume gives the connection back to the server for the client's next request. It closes the
// connection if that may carry no further request. The response must be complete. resume blocks
// until the connection is closed or taken over again.
func (h *hijacked) resume() {
	h.stopRead()
	h.release()
	_ = h.conn.SetDeadline(time.Time{})
	if !h.server.Conns.KeepAlive(h.conn) || !h.awaitRequest() {
		h.Close()
		return
	}
	if err := h.server.ServeConn(h.conn, h.kept); err == fasthttp.ErrConcurrencyLimit {
		h.Close() // the one error without a call of stateChanged
	}
}

// awaitRequest waits for the first bytes of the next request, for the idle timeout at most, and
// reports whether any have come. fasthttp would take the connection for a new one. It would wait
// for as long as a head may take, and then answer 408 to a request that nobody has sent.
func (h *hijacked) awaitRequest() bool {
	if len(h.kept) > 0 {
		return true
	}
	_ = h.conn.SetReadDeadline(time.Now().Add(h.server.fast[0].IdleTimeout))
	first := make([]byte, 512)
	n, _ := h.conn.Read(first)
	h.kept = first[:n]
	return n > 0
}

// Close closes the connection. It may be called from any goroutine, and more than once.
func (h *hijacked) Close() {
	_ = h.conn.Close()
	h.release()
	h.server.Conns.Closed(h.conn)
}

func (h *hijacked) release() {
	if h.slot != nil {
		h.slot.Release()
	}
}
