package http1

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// responder writes the response to one request on a connection that has been taken over. It
// implements [exchange.Responder].
type responder struct {
	conn   *hijacked
	method string
	http11 bool      // the client reads chunked bodies
	last   bool      // the client sends no further request
	due    time.Time // when the response must have been written; zero for no limit

	reusable bool // the response is complete, and the connection can carry another request
}

// detach takes over the connection of ctx and calls answer to write the response there.
func (s *Server) detach(ctx *fasthttp.RequestCtx, x *exchange.Exchange, answer func(exchange.Responder)) {
	r := newResponder(x)
	s.hijack(ctx, x, func(h *hijacked) { r.run(h, answer) })
}

func newResponder(x *exchange.Exchange) *responder {
	return &responder{method: x.Method, http11: x.Protocol >= exchange.HTTP11, last: x.Close, due: x.WriteBy()}
}

// run has answer write the response on a connection. Then the connection carries another request,
// or is closed.
func (r *responder) run(h *hijacked, answer func(exchange.Responder)) {
	r.conn = h
	answer(r)
	if r.reusable {
		h.resume()
	} else {
		h.Close()
	}
}

// later takes over the connection of ctx, goes on with the handler's work, and writes the response
// there.
func (s *Server) later(ctx *fasthttp.RequestCtx, x *exchange.Exchange) {
	own := *x // the server's goroutine reuses x
	own.Header, own.Response.Header = slices.Clone(x.Header), nil
	s.hijack(ctx, x, func(h *hijacked) {
		written := sync.OnceFunc(func() {
			if own.Until != nil {
				_ = own.Until.Close()
			}
		})
		defer written()
		own.Continue()
		own.Response.Close = own.Response.Close || own.Close || own.Conn.(*downstream.Conn).Last()
		switch resp := &own.Response; {
		case resp.Stream != nil:
			st, head := newStream(&own)
			st.run(h, head)
		case resp.Detached != nil:
			written()
			newResponder(&own).run(h, resp.Detached)
		default:
			newResponder(&own).run(h, func(to exchange.Responder) {
				defer written() // before the next request
				to.Respond(resp)
			})
		}
	})
}

// OnGone implements exchange.Responder.
func (r *responder) OnGone(gone func()) {
	go func() {
		defer r.conn.server.Guard.Caught("stream's reader", gone)
		r.conn.waitRead(gone)
	}()
}

// Respond implements exchange.Responder.
func (r *responder) Respond(resp *exchange.Response) {
	length := resp.Length
	if resp.Reader == nil {
		length = int64(resp.Body.Size())
	} else {
		defer resp.Reader.Close()
	}
	body := resp.HasBody(r.method) || resp.Bare
	f := framed{length: length, http11: r.http11}
	f.chunked = body && length < 0 && r.http11 && !resp.Bare
	f.keepAlive = !r.last && !resp.Close && !resp.Bare && (f.chunked || !body || length >= 0)
	begin := appendHead(nil, resp, f)
	if body && resp.Reader == nil {
		for _, slice := range resp.Body {
			begin = append(begin, slice...)
		}
	}
	err := r.write(begin)
	if err == nil && body && resp.Reader != nil {
		err = r.copy(resp.Reader, f.chunked)
	}
	r.reusable = err == nil && f.keepAlive
}

// copy writes the bytes of from, each read at once, and then the end of the body.
func (r *responder) copy(from io.Reader, chunked bool) error {
	// The buffer holds a chunk's length, its bytes and its line end.
	const room = 16
	buf := make([]byte, room+copyBufferSize+2)
	for {
		n, readErr := from.Read(buf[room : room+copyBufferSize])
		if n > 0 {
			from, to := room, room+n
			if chunked {
				length := strconv.AppendInt(nil, int64(n), 16)
				from -= len(length) + 2
				copy(buf[from:], length)
				copy(buf[room-2:], "\r\n")
				to += copy(buf[to:], "\r\n")
			}
			if err := r.write(buf[from:to]); err != nil {
				return err
			}
		}
		switch {
		case readErr == io.EOF && chunked:
			return r.write([]byte(framing.LastChunk))
		case readErr == io.EOF:
			return nil
		case readErr != nil:
			return readErr
		}
	}
}

func (r *responder) write(p []byte) error {
	c, deadline := r.conn.conn, time.Now().Add(downstream.StallTimeout)
	if !r.due.IsZero() && r.due.Before(deadline) {
		deadline = r.due
	}
	_ = c.SetWriteDeadline(deadline)
	_, err := c.Write(p)
	return err
}

// Upgrade implements exchange.Responder. From here on, only a reader of the connection notices that
// the client leaves.
func (r *responder) Upgrade(resp *exchange.Response) (exchange.Upgraded, error) {
	r.conn.stopRead()
	head := []byte("HTTP/1.1 101 Switching Protocols\r\n")
	for _, f := range resp.Header {
		head = appendField(head, f)
	}
	if err := r.write(append(head, "\r\n"...)); err != nil {
		return nil, err
	}
	_ = r.conn.conn.SetWriteDeadline(time.Time{})
	return upgraded{r.conn}, nil
}

// upgraded is a connection that has been taken over and now speaks another protocol.
type upgraded struct{ *hijacked }

// Read returns the bytes that the client has already sent, then reads the connection.
func (u upgraded) Read(p []byte) (int, error) {
	if len(u.kept) > 0 {
		n := copy(p, u.kept)
		u.kept = u.kept[n:]
		return n, nil
	}
	return u.conn.Read(p)
}

func (u upgraded) Write(p []byte) (int, error) { return u.conn.Write(p) }

// ReadFrom writes the bytes of from. Where possible, the kernel alone copies them.
func (u upgraded) ReadFrom(from io.Reader) (int64, error) { return io.Copy(u.conn, from) }

// Close closes the connection.
func (u upgraded) Close() error {
	u.hijacked.Close()
	return nil
}

func (u upgraded) CloseWrite() error {
	if c, ok := u.conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// framed says how a response's body ends, and whether the connection stays open.
type framed struct {
	chunked   bool
	length    int64 // -1 if not known
	keepAlive bool
	http11    bool

	warningsFirst bool // Warning before Transfer-Encoding, as in the proxy's own watches
}

// appendHead appends the head of r: its fields in their order, with the fields of HTTP/1.1 itself
// sorted in.
func appendHead(b []byte, r *exchange.Response, f framed) []byte {
	status := r.Code()
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(append(append(b, ' '), http.StatusText(status)...), "\r\n"...)
	if r.Bare {
		for _, field := range r.Header {
			b = appendField(b, field)
		}
		return append(b, "\r\n"...)
	}
	own := make(exchange.Header, 0, 3) // sorted
	switch {
	case !f.keepAlive:
		own.Add("Connection", "close")
	case !f.http11:
		own.Add("Connection", "keep-alive")
	}
	if !f.chunked && f.length >= 0 && status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified {
		own.Add("Content-Length", strconv.FormatInt(f.length, 10))
	}
	if r.Header.Get("Date") == "" {
		own.Add("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	if f.chunked {
		own.Add("Transfer-Encoding", "chunked")
	}
	for _, field := range r.Header {
		for len(own) > 0 && own[0].Name < field.Name {
			if f.warningsFirst && own[0].Is("Transfer-Encoding") && field.Is("Warning") {
				break
			}
			b = appendField(b, own[0])
			own = own[1:]
		}
		b = appendField(b, field)
	}
	for _, field := range own {
		b = appendField(b, field)
	}
	return append(b, "\r\n"...)
}

func appendField(b []byte, f exchange.Field) []byte {
	return append(append(append(append(b, f.Name...), ": "...), f.Value...), "\r\n"...)
}
