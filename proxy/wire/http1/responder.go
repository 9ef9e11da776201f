package http1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
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

// runOn takes over the connection of ctx, goes on with the handler's work if there is some left, and
// writes the response of x there.
func (s *Server) runOn(ctx *fasthttp.RequestCtx, x *exchange.Exchange) {
	own := *x // the server's goroutine reuses x
	own.Header, own.Response.Header = slices.Clone(x.Header), slices.Clone(x.Response.Header)
	s.hijack(ctx, x, func(h *hijacked) {
		defer own.Written()
		own.Continue()
		resp := &own.Response
		resp.Close = resp.Close || own.Close || h.client.Last()
		r := &responder{conn: h, method: own.Method, http11: own.Protocol >= exchange.HTTP11, last: own.Close, due: own.WriteBy()}
		switch {
		case resp.Stream != nil:
			begin(h, &own)
		case resp.Detached != nil:
			answer := resp.Detached
			own.Written()
			own = exchange.Exchange{} // answer may take long
			r.run(answer)
		default:
			r.run(func(to exchange.Responder) {
				defer own.Written() // before the next request
				to.Respond(resp)
			})
		}
	})
}

// run has answer write the response. Then the connection carries another request, or is closed.
func (r *responder) run(answer func(exchange.Responder)) {
	answer(r)
	if r.reusable {
		r.conn.resume()
	} else {
		r.conn.Close()
	}
}

func (r *responder) OnGone(gone func()) {
	go func() {
		defer r.conn.server.Guard.Caught("stream's reader", gone)
		r.conn.waitRead(gone)
	}()
}

func (r *responder) Respond(resp *exchange.Response) {
	if resp.Reader != nil {
		defer resp.Reader.Close()
	}
	body := resp.HasBody(r.method) || resp.Bare
	f := framed{length: resp.BodyLength(), http11: r.http11}
	f.chunked = body && f.length < 0 && r.http11 && !resp.Bare
	f.keepAlive = !r.last && !resp.Close && !resp.Bare && (f.chunked || !body || f.length >= 0)
	begin := appendHead(nil, resp, f)
	if body {
		begin = slices.Concat(append([][]byte{begin}, resp.Body...)...)
	}
	err := r.write(begin)
	if err == nil && body && resp.Reader != nil {
		err = r.copy(resp.Reader, f.length, f.chunked)
	}
	r.reusable = err == nil && f.keepAlive
}

// copy writes a body of some length; -1 is any length.
func (r *responder) copy(from io.Reader, length int64, chunked bool) error {
	return exchange.Copy(from, length, func(p []byte, last bool) error {
		if chunked {
			p = chunkOf(p, last)
		}
		if len(p) == 0 {
			return nil
		}
		return r.write(p)
	})
}

// chunkOf returns p as a chunk. The last one ends the body.
func chunkOf(p []byte, last bool) (chunk []byte) {
	if len(p) > 0 {
		chunk = strconv.AppendInt(make([]byte, 0, len(p)+16), int64(len(p)), 16)
		chunk = append(append(append(chunk, "\r\n"...), p...), "\r\n"...)
	}
	if last {
		chunk = append(chunk, framing.LastChunk...)
	}
	return chunk
}

func (r *responder) write(p []byte) error {
	_ = r.conn.conn.SetWriteDeadline(downstream.Stalled(r.due))
	_, err := r.conn.conn.Write(p)
	return err
}

// Upgrade implements exchange.Responder. From here on, only a reader of the connection notices that
// the client leaves.
func (r *responder) Upgrade(resp *exchange.Response) (exchange.Upgraded, error) {
	r.conn.stopRead()
	bare := exchange.Response{Status: http.StatusSwitchingProtocols, Header: resp.Header, Bare: true}
	if err := r.write(appendHead(nil, &bare, framed{})); err != nil {
		return nil, err
	}
	_ = r.conn.conn.SetWriteDeadline(time.Time{})
	return upgraded{r.conn, io.MultiReader(bytes.NewReader(r.conn.kept), r.conn.conn)}, nil
}

// upgraded is a connection that has been taken over and now speaks another protocol. It reads first what
// the client has already sent.
type upgraded struct {
	*hijacked
	io.Reader
}

func (u upgraded) Write(p []byte) (int, error) { return u.conn.Write(p) }

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
	if length := r.SaysLength(f.length); length != "" && !f.chunked {
		own.Add("Content-Length", length)
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
