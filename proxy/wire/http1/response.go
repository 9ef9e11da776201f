package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// respond sends the response of x when fasthttp's handler has returned. Either fasthttp sends it,
// or it is written on the connection taken over from fasthttp. body is the request's, nil for none.
func (s *Server) respond(ctx *fasthttp.RequestCtx, x *exchange.Exchange, body *requestBody) {
	defer s.Guard.Caught("response", func() {
		ctx.Hijack(nil)
		keptOf(ctx.Conn()).broken = nil
		ctx.Response.Reset()
		ctx.SetStatusCode(http.StatusInternalServerError)
		ctx.SetConnectionClose()
	})
	r := &x.Response
	runsOn := r.Stream != nil || r.Detached != nil || r.Later != nil
	// fasthttp would add a head's usual fields. HTTP/1.0 has no chunks, but fasthttp would send them.
	own := r.Bare || r.Reader != nil && r.Length < 0 && r.HasBody(x.Method) && x.Protocol < exchange.HTTP11
	if runsOn || own {
		if body != nil && !runsOn {
			body.Release()
		}
		s.runOn(ctx, x)
		return
	}
	if x.Until != nil {
		ctx.SetUserValue(untilKey{}, x.Until) // fasthttp closes it at the end
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

// responseBody is a response's Reader while fasthttp sends it to the client.
type responseBody struct {
	io.ReadCloser
	length  int64 // -1 if not known
	conn    net.Conn
	request *requestBody  // nil for none; it may be read while the response is being sent
	slot    exchange.Slot // released by Close; nil for none
	guard   *exchange.Guard
}

// SupportsBodyWriteTo makes fasthttp use WriteTo.
func (*responseBody) SupportsBodyWriteTo() bool { return true }

// WriteTo sends each read on at once, with a deadline for each write. fasthttp's own loop does this
// only for bodies of unknown length.
func (b *responseBody) WriteTo(w io.Writer) (n int64, err error) {
	defer b.guard.Caught("response body", func() { err = exchange.ErrPanicked }) // fasthttp closes the connection
	flusher, _ := w.(interface{ Flush() error })
	err = exchange.Copy(b, b.length, func(p []byte, _ bool) error {
		if len(p) == 0 {
			return nil
		}
		_ = b.conn.SetWriteDeadline(downstream.Stalled(time.Time{}))
		written, err := w.Write(p)
		n += int64(written)
		if err == nil && flusher != nil {
			err = flusher.Flush()
		}
		return err
	})
	return n, err
}

// Close ends the response, and releases the request's body and slot.
func (b *responseBody) Close() (err error) {
	defer b.guard.Caught("response body", func() { err = exchange.ErrPanicked })
	err = b.ReadCloser.Close()
	if b.request != nil {
		b.request.Release()
	}
	if b.slot != nil {
		b.slot.Release()
	}
	return err
}
