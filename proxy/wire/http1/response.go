package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// respond sends the response of x when fasthttp's handler has returned. Either fasthttp sends it,
// or it is written on the connection taken over from fasthttp. body is the request's, nil for none.
func (s *Server) respond(ctx *fasthttp.RequestCtx, x *exchange.Exchange, body *requestBody) {
	defer s.Guard.Caught("response", func() {
		ctx.Hijack(nil)
		ctx.Response.Reset()
		ctx.SetStatusCode(http.StatusInternalServerError)
		ctx.SetConnectionClose()
	})
	r := &x.Response
	if x.Until != nil {
		ctx.SetUserValue(untilKey{}, x.Until) // fasthttp closes it at the end
	}
	unknown := r.Reader != nil && r.Length < 0 && r.HasBody(x.Method)
	switch {
	case r.Stream != nil:
		s.stream(ctx, x)
		return
	case r.Detached != nil:
		s.detach(ctx, x, r.Detached)
		return
	case r.Later != nil:
		s.later(ctx, x)
		return
	case r.Bare, unknown && x.Protocol < exchange.HTTP11:
		// fasthttp would add a head's usual fields. HTTP/1.0 has no chunks, but fasthttp would send
		// them.
		if body != nil {
			body.Release()
		}
		whole := *r
		whole.Header = append(exchange.Header(nil), r.Header...)
		s.detach(ctx, x, func(to exchange.Responder) { to.Respond(&whole) })
		return
	}
	if x.Slot != nil && r.Reader == nil {
		x.Slot.Release()
	}
	switch {
	case body == nil:
	case r.Reader != nil && !body.atEnd.Load():
		// The response begins before the body has ended. The rest of the body cannot be told from
		// the client's next request.
		r.Close = true
	case r.Reader == nil && !body.Release():
		r.Close = true
	}
	if r.Reader != nil {
		r.Reader = &responseBody{ReadCloser: r.Reader, length: r.Length, conn: ctx.Conn(), request: body, slot: x.Slot, guard: s.Guard}
	}
	s.write(ctx, x)
}

// untilKey is the key of the user value that holds a request's Until.
type untilKey struct{}

// copiedBody is the largest size of a body that is copied, to leave in one write with its head.
const copiedBody = 16 << 10

// write copies the response of x to ctx.
func (s *Server) write(ctx *fasthttp.RequestCtx, x *exchange.Exchange) {
	r, to := &x.Response, &ctx.Response
	keptOf(ctx.Conn()).due = x.WriteBy()
	to.SetStatusCode(r.Code())
	for _, f := range r.Header {
		to.Header.Add(f.Name, f.Value)
	}
	if r.Close {
		to.SetConnectionClose()
	}
	switch size := r.Body.Size(); {
	case r.Reader != nil && !r.HasBody(x.Method):
		if r.Length >= 0 && r.Code() >= 200 && r.Code() != http.StatusNoContent {
			to.Header.SetContentLength(int(r.Length))
		}
		to.SkipBody = true
		_ = r.Reader.Close()
	case r.Reader != nil:
		// The head of a response of known length leaves with the first bytes of its body.
		to.ImmediateHeaderFlush = r.Length < 0
		to.SetBodyStream(r.Reader, int(r.Length))
	case size > copiedBody:
		to.SetBodyStream(&slicesBody{conn: accepted(ctx.Conn()), slices: r.Body, turn: r.Turn, guard: s.Guard}, size)
	default:
		for _, slice := range r.Body {
			to.AppendBody(slice)
		}
	}
}

// slicesBody is a body of shared slices in the form that fasthttp takes. It writes itself
// (fasthttp.BodyWriterTo) past fasthttp's buffer, and is never read.
type slicesBody struct {
	conn   net.Conn // as the listener accepted it
	slices exchange.BodySlices
	turn   exchange.Turn // not held
	guard  *exchange.Guard
}

// SupportsBodyWriteTo makes fasthttp use WriteTo.
func (b *slicesBody) SupportsBodyWriteTo() bool { return true }

// WriteTo writes the body to the connection, after it has flushed w.
func (b *slicesBody) WriteTo(w io.Writer) (n int64, err error) {
	defer b.guard.Caught("response body", func() { err = exchange.ErrPanicked }) // fasthttp closes the connection
	if buffered, ok := w.(*bufio.Writer); ok {
		if err := buffered.Flush(); err != nil {
			return 0, err
		}
	}
	return downstream.WriteSlices(b.conn, b.slices, b.turn)
}

func (b *slicesBody) Read([]byte) (int, error) {
	return 0, errors.New("a body of slices is written, not read")
}
