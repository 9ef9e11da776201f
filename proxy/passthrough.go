package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// halfCloseGrace is how long the other direction of an upgraded connection may go on once one has ended.
	halfCloseGrace = 30 * time.Second

	copyBufferSize = 32 << 10
)

// passthrough forwards to kube-apiserver every request that is not served here, and its response back, as they come: both bodies
// are streamed, and what has arrived is sent on at once.
//
// An ordinary request is answered through fasthttp. One that may last (a watch, a log, an upgrade) gets the client's
// connection for itself before it goes upstream, so that a client that leaves is noticed although nothing is being sent,
// and its upstream request cancelled. A response that kube-apiserver breaks off ends in a broken connection, never in a proper end.
type passthrough struct {
	upstream *Upstream
	front    *frontProxies // whose headers are not forwarded
	conns    *connections
	audit    *auditLog
	log      *slog.Logger

	requests context.Context // ends the ordinary requests
	streams  context.Context // ends watches, logs and upgrades
}

// newPassthrough returns what forwards requests to upstream. The ordinary ones end with requests; watches, logs and upgrades
// with streams. front says which headers are not forwarded.
func newPassthrough(requests, streams context.Context, upstream *Upstream, front *frontProxies, conns *connections, audit *auditLog, log *slog.Logger) *passthrough {
	return &passthrough{upstream: upstream, front: front, conns: conns, audit: audit, log: log, requests: requests, streams: streams}
}

// serve forwards the request of ctx in the name of id.
func (p *passthrough) serve(ctx *fasthttp.RequestCtx, id identity) {
	arrivalOf(accepted(ctx.Conn())).end() // from here on it waits for others
	audit, refused := p.audit.passing(ctx, id)
	if refused != nil {
		writeStatus(ctx, refused)
		if body := ctx.RequestBodyStream(); body != nil && !discardBody(ctx.Conn(), body) {
			ctx.SetConnectionClose()
		}
		return
	}
	req := &http.Request{
		Method: string(ctx.Method()),
		URL:    p.target(ctx.Request.Header.RequestURI()),
		Header: p.forwardHeader(ctx),
		Body:   http.NoBody,
	}
	upgrade := upgradeType(ctx)
	switch {
	case hasBody(ctx):
		p.forward(ctx, id, req, audit)
	case upgrade != "":
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", upgrade)
		p.own(ctx, id, req, audit, true)
	case mayLast(ctx):
		p.own(ctx, id, req, audit, false)
	default:
		p.forward(ctx, id, req, audit)
	}
}

// hasBody reports whether the request has a body, as a length or as chunks announce it.
func hasBody(ctx *fasthttp.RequestCtx) bool {
	n := ctx.Request.Header.ContentLength()
	return n > 0 || n == -1
}

// target returns where a request line's target leads upstream, its path and query exactly as they were sent.
func (p *passthrough) target(requestURI []byte) *url.URL {
	path, query, asked, _ := cutTarget(requestURI)
	to := p.upstream.URL(string(path), string(query))
	to.ForceQuery = asked
	return to
}

// mayLast reports whether the request may be one that kube-apiserver answers for as long as the client stays: a watch, a log, or
// whatever a proxied pod, service or node does. A wrong yes costs a little; a wrong no only that a client that leaves is noticed at the
// next write.
func mayLast(ctx *fasthttp.RequestCtx) bool {
	path, _, _ := bytes.Cut(ctx.Request.Header.RequestURI(), []byte("?"))
	return ctx.QueryArgs().Has("watch") || bytes.Contains(path, []byte("/watch/")) ||
		bytes.HasSuffix(path, []byte("/log")) || bytes.Contains(path, []byte("/proxy"))
}

// upgradeType returns the protocol that the client asks to change to, "" when it asks for none.
func upgradeType(ctx *fasthttp.RequestCtx) string {
	if !ctx.Request.Header.IsHTTP11() || !ctx.Request.Header.ConnectionUpgrade() {
		return ""
	}
	return string(ctx.Request.Header.Peek("Upgrade"))
}

// hopByHop are the headers that concern one connection only (RFC 9110, section 7.6.1), and those that net/http sets itself.
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length"}

func removeHopByHop(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}

// forwardHeader returns the request's header as it goes upstream. Who the client says it is does not go along; Upstream says
// that, by Authorization and Impersonate-*.
func (p *passthrough) forwardHeader(ctx *fasthttp.RequestCtx) http.Header {
	h := make(http.Header, 12)
	for key, value := range ctx.Request.Header.All() {
		h.Add(string(key), string(value))
	}
	removeHopByHop(h)
	delete(h, "Host")
	delete(h, "Expect") // answered here
	delete(h, "Authorization")
	for name := range h {
		if p.front.speaksBy(name) {
			delete(h, name)
		}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // keeps net/http from sending its own
	}
	via := append(h["X-Forwarded-For"], ctx.RemoteIP().String())
	h["X-Forwarded-For"] = []string{strings.Join(via, ", ")}
	return h
}

// forward answers ctx with the response to req, whose body is streamed from the client.
func (p *passthrough) forward(ctx *fasthttp.RequestCtx, id identity, req *http.Request, audit *passedAudit) {
	passthroughInFlight.Add(1)
	body := &requestBody{conn: ctx.Conn(), log: p.log}
	if hasBody(ctx) {
		body.stream, body.length = ctx.RequestBodyStream(), ctx.Request.Header.ContentLength()
		req.Body, req.ContentLength = &bodyAttempt{body: body}, int64(body.length)
		req.GetBody = body.again
	} else {
		body.atEnd.Store(true)
	}
	resp, err := p.upstream.DoAs(id, req.WithContext(p.requests))
	if err != nil {
		passthroughInFlight.Add(-1)
		whole := body.release()
		st := body.failure()
		if st == nil {
			p.failed(req, err)
			st = unreachable(req, err)
		}
		writeStatus(ctx, st)
		audit.failed(st)
		if !whole {
			ctx.SetConnectionClose()
		}
		return
	}
	countPassthrough(req, resp.StatusCode)
	audit.answered(resp.StatusCode)
	removeHopByHop(resp.Header)
	noBody := !hasResponseBody(req.Method, resp)
	if resp.ContentLength < 0 && !noBody && !ctx.Request.Header.IsHTTP11() {
		// HTTP/1.0 has no chunks, and fasthttp would send some.
		body.release()
		p.conns.hijack(ctx, func(h *hijacked) {
			defer passthroughInFlight.Add(-1)
			p.writeResponse(h, resp, &exchange{req: req})
			h.Close()
		})
		return
	}
	ctx.SetStatusCode(resp.StatusCode)
	for name, values := range resp.Header {
		for _, value := range values {
			ctx.Response.Header.Add(name, value)
		}
	}
	if !body.atEnd.Load() {
		// Answered early. What the client still sends cannot be told from its next request.
		ctx.SetConnectionClose()
	}
	stream := &responseBody{ReadCloser: resp.Body, conn: ctx.Conn(), request: body, log: p.log}
	if noBody {
		if resp.ContentLength >= 0 && resp.StatusCode >= 200 && resp.StatusCode != http.StatusNoContent {
			ctx.Response.Header.SetContentLength(int(resp.ContentLength))
		}
		ctx.Response.SkipBody = true
		_ = stream.Close()
		return
	}
	// The head of a response of known length leaves with the first bytes of its body.
	ctx.Response.ImmediateHeaderFlush = resp.ContentLength < 0
	ctx.Response.SetBodyStream(stream, int(resp.ContentLength))
}

// hasResponseBody reports whether a body follows the head of resp (RFC 9112, section 6.3).
func hasResponseBody(method string, resp *http.Response) bool {
	return method != http.MethodHead && resp.StatusCode >= 200 &&
		resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusNotModified
}

// failed logs and counts a request that got no response.
func (p *passthrough) failed(req *http.Request, err error) {
	passthroughErrors.Inc()
	p.log.Debug("Upstream request failed", "method", req.Method, "path", req.URL.Path, "err", err)
}

// unreachable says that kube-apiserver did not answer. The client is told to retry only what cannot have taken effect.
func unreachable(req *http.Request, err error) *metav1.Status {
	st := serviceUnavailable("kube-apiserver cannot be reached through this proxy at the moment; " +
		"if this lasts, see the proxy's /readyz and its log for the reason")
	var dial *net.OpError
	safe := req.Method == http.MethodGet || req.Method == http.MethodHead || errors.As(err, &dial) && dial.Op == "dial"
	if !safe {
		st.Details = nil
		st.Message = "kube-apiserver broke off the connection before it answered; the request may or may not have taken effect"
	}
	return st
}

// requestBody is a request's body while net/http sends it upstream. net/http may still read it when the response has begun and even when
// it has ended; fasthttp takes it away then. release comes between the two.
//
// It can be sent again from its beginning while it is short. Kube-apiserver ends a connection (HTTP/2's GOAWAY) whenever somebody on it
// is not who they say, and has not looked at the requests that came last: net/http then sends those again, or they fail. Strangers share
// a connection, and none of them must be able to have another's request fail; Upstream sends what cannot be sent again elsewhere.
type requestBody struct {
	conn   net.Conn
	length int // chunkedLength for one in chunks
	log    *slog.Logger

	atEnd atomic.Bool // the body has been read to its end

	releasing atomic.Bool

	mu          sync.Mutex
	stream      io.Reader // nil once released
	err         error     // what stream ended with
	interrupted bool      // err is release's doing
	total       int       // bytes that stream has brought
	kept        []byte    // those bytes, while they are no more than maxKeptBody
}

var (
	errBodyReleased = errors.New("request body released: the response is complete")
	errBodyNotKept  = errors.New("request body is too long to be sent again")
)

// bodyAttempt reads a requestBody from its beginning.
type bodyAttempt struct {
	body *requestBody
	at   int // bytes read
}

// again is net/http's Request.GetBody.
func (b *requestBody) again() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total > maxKeptBody {
		return nil, errBodyNotKept
	}
	return &bodyAttempt{body: b}, nil
}

// Read implements io.Reader, for net/http on goroutines that are its own or everybody's.
func (a *bodyAttempt) Read(p []byte) (n int, err error) {
	defer caught(a.body.log, "request body", func() { n, err = 0, errPanicked })
	n, err = a.body.readAt(p, a.at)
	a.at += n
	return n, err
}

// Close is net/http's and leaves the stream to release.
func (a *bodyAttempt) Close() error { return nil }

// readAt reads on from at, which is no more than total.
func (b *requestBody) readAt(p []byte, at int) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case at < len(b.kept):
		return copy(p, b.kept[at:]), nil
	case at < b.total:
		return 0, errBodyNotKept
	case b.err != nil:
		return 0, b.err
	case b.stream == nil:
		return 0, errBodyReleased
	}
	_ = b.conn.SetReadDeadline(time.Now().Add(stallTimeout))
	if b.releasing.Load() { // its deadline may have come before ours
		return 0, errBodyReleased
	}
	n, err := b.stream.Read(p)
	if b.total += n; b.total <= maxKeptBody {
		b.kept = append(b.kept, p[:n]...)
	} else {
		b.kept = nil
	}
	if err == io.EOF && !b.wholeLocked() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		b.err = err
		b.atEnd.Store(err == io.EOF)
		b.interrupted = b.releasing.Load()
	}
	return n, err
}

// wholeLocked reports whether a stream that has said io.EOF has brought all of the body.
func (b *requestBody) wholeLocked() bool {
	if b.length == chunkedLength {
		return sawEnd(b.stream)
	}
	return b.total == b.length
}

// release ends a read in progress, reads a little of what is left, and gives the stream back to fasthttp. It reports
// whether the body was whole, so that the connection can carry another request.
func (b *requestBody) release() (whole bool) {
	if !b.atEnd.Load() {
		b.releasing.Store(true)
		_ = b.conn.SetReadDeadline(longAgo)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream != nil && b.err == nil {
		whole = discardBody(b.conn, b.stream)
	}
	b.stream = nil
	return whole || b.atEnd.Load()
}

// failure says what was wrong with the client's body, nil if nothing was.
func (b *requestBody) failure() *metav1.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err == nil || b.err == io.EOF || b.interrupted:
		return nil
	case errors.Is(b.err, os.ErrDeadlineExceeded):
		return failure(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the request's body did not arrive in time")
	}
	return badRequest("the request's body could not be read")
}

// discardBody reads what is left of a body, if that is little and comes soon, and reports whether that was all of it.
// Closing a connection with unread bytes resets it, and the client may lose the response.
func discardBody(c net.Conn, stream io.Reader) (all bool) {
	_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	n, err := io.CopyN(io.Discard, stream, 256<<10)
	return err == io.EOF && n < 256<<10
}

// responseBody is a response's body while fasthttp sends it to the client.
type responseBody struct {
	io.ReadCloser
	conn    net.Conn
	request *requestBody
	log     *slog.Logger
}

// SupportsBodyWriteTo makes fasthttp use WriteTo.
func (*responseBody) SupportsBodyWriteTo() bool { return true }

// WriteTo sends on each read as it comes, which fasthttp's own loop does only for bodies of unknown length, and gives each write its
// own time.
func (b *responseBody) WriteTo(w io.Writer) (n int64, err error) {
	defer caught(b.log, "response body", func() { err = errPanicked }) // fasthttp closes the connection
	buf := copyBuffers.Get().(*[copyBufferSize]byte)
	defer copyBuffers.Put(buf)
	flusher, _ := w.(interface{ Flush() error })
	for {
		read, readErr := b.Read(buf[:])
		if read > 0 {
			_ = b.conn.SetWriteDeadline(time.Now().Add(stallTimeout))
			written, err := w.Write(buf[:read])
			n += int64(written)
			if err == nil && flusher != nil {
				err = flusher.Flush()
			}
			if err != nil {
				return n, err
			}
		}
		if readErr == io.EOF {
			return n, nil
		}
		if readErr != nil {
			passthroughBroken.Inc()
			return n, readErr
		}
	}
}

func (b *responseBody) Close() (err error) {
	defer caught(b.log, "response body", func() { err = errPanicked })
	passthroughInFlight.Add(-1)
	err = b.ReadCloser.Close()
	b.request.release()
	return err
}

var copyBuffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

// exchange is one request on a connection taken over, and what its answer depends on.
type exchange struct {
	req       *http.Request
	id        identity
	audit     *passedAudit
	upgrade   bool
	keepAlive bool // the client may send another request
	chunked   bool // the client knows chunks
	pretty    bool // error bodies only
	auditID   string
}

// own takes the client's connection over and forwards req on it.
func (p *passthrough) own(ctx *fasthttp.RequestCtx, id identity, req *http.Request, audit *passedAudit, upgrade bool) {
	x := &exchange{
		req:       req,
		id:        id,
		audit:     audit,
		upgrade:   upgrade,
		keepAlive: !ctx.Request.Header.ConnectionClose(),
		chunked:   ctx.Request.Header.IsHTTP11(),
		pretty:    prettyStatus(ctx),
		auditID:   auditID(ctx),
	}
	p.conns.hijack(ctx, func(h *hijacked) {
		if p.exchange(h, x) {
			h.Resume()
		} else {
			h.Close()
		}
	})
}

// exchange forwards one request and reports whether the connection can carry another.
func (p *passthrough) exchange(h *hijacked, x *exchange) (reusable bool) {
	passthroughInFlight.Add(1)
	defer passthroughInFlight.Add(-1)
	passthroughStreams.Add(1)
	defer passthroughStreams.Add(-1)
	ctx, cancel := context.WithCancel(p.streams)
	defer cancel()
	go func() {
		defer caught(p.log, "stream's reader", cancel)
		h.WaitRead(cancel)
	}()

	send := p.upstream.DoAs
	if x.upgrade {
		send = p.upstream.DoUpgrade
	}
	resp, err := send(x.id, x.req.WithContext(ctx))
	if err != nil {
		if ctx.Err() != nil {
			x.audit.left()
			return false // the client is gone, or we are stopping
		}
		p.failed(x.req, err)
		st := unreachable(x.req, err)
		x.audit.failed(st)
		resp = statusResponse(st, x.auditID, x.pretty)
	} else {
		countPassthrough(x.req, resp.StatusCode)
		if lasting(resp) {
			x.audit.started(resp.StatusCode)
			defer x.audit.answered(resp.StatusCode)
		} else {
			x.audit.answered(resp.StatusCode)
		}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		p.tunnel(h, resp)
		return false
	}
	if x.upgrade && resp.Close {
		x.keepAlive = false // what follows may have been meant for the other protocol
	}
	removeHopByHop(resp.Header)
	return p.writeResponse(h, resp, x)
}

// writeResponse writes resp to a connection taken over and reports whether the connection can carry another request.
func (p *passthrough) writeResponse(h *hijacked, resp *http.Response, x *exchange) (reusable bool) {
	defer resp.Body.Close()
	body := hasResponseBody(x.req.Method, resp)
	chunked := body && resp.ContentLength < 0 && x.chunked
	keepAlive := x.keepAlive && (chunked || !body || resp.ContentLength >= 0)

	c := h.Conn()
	_ = c.SetWriteDeadline(time.Now().Add(stallTimeout))
	if _, err := c.Write(appendHead(nil, resp, chunked, keepAlive, x.chunked)); err != nil {
		return false
	}
	if !body {
		return keepAlive
	}
	// One buffer: room for a chunk's length, the bytes, room for its line end.
	const room = 16
	buf := make([]byte, room+copyBufferSize+2)
	whole := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") // what was written is whole events
	lines := whole
	for {
		n, readErr := resp.Body.Read(buf[room : room+copyBufferSize])
		if n > 0 {
			whole = lines && buf[room+n-1] == '\n'
			from, to := room, room+n
			if chunked {
				length := strconv.AppendInt(nil, int64(n), 16)
				from -= len(length) + 2
				copy(buf[from:], length)
				copy(buf[room-2:], "\r\n")
				to += copy(buf[to:], "\r\n")
			}
			_ = c.SetWriteDeadline(time.Now().Add(stallTimeout))
			if _, err := c.Write(buf[from:to]); err != nil {
				return false
			}
		}
		if readErr == io.EOF {
			break
		}
		if readErr != nil {
			if !errors.Is(readErr, context.Canceled) {
				passthroughBroken.Inc()
			}
			if !whole || p.streams.Err() == nil {
				return false
			}
			keepAlive = false // we are stopping: the watch ends properly
			break
		}
	}
	if chunked {
		_ = c.SetWriteDeadline(time.Now().Add(stallTimeout))
		if _, err := io.WriteString(c, "0\r\n\r\n"); err != nil {
			return false
		}
	}
	return keepAlive
}

// appendHead appends the status line and header of resp, with the framing that is to follow.
func appendHead(dst []byte, resp *http.Response, chunked, keepAlive, http11 bool) []byte {
	b := bytes.NewBuffer(dst)
	fmt.Fprintf(b, "HTTP/1.1 %03d %s\r\n", resp.StatusCode, http.StatusText(resp.StatusCode))
	if resp.Header.Get("Date") == "" {
		resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	switch {
	case chunked:
		resp.Header.Set("Transfer-Encoding", "chunked")
	case resp.ContentLength >= 0 && resp.StatusCode >= 200 && resp.StatusCode != http.StatusNoContent:
		resp.Header.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	switch {
	case !keepAlive:
		resp.Header.Set("Connection", "close")
	case !http11:
		resp.Header.Set("Connection", "keep-alive")
	}
	_ = resp.Header.Write(b) // a Buffer does not fail
	b.WriteString("\r\n")
	return b.Bytes()
}

// tunnel joins the client's connection and the upgraded one of resp until both directions have ended, or one has failed.
func (p *passthrough) tunnel(h *hijacked, resp *http.Response) {
	h.StopRead()
	up, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		_ = resp.Body.Close()
		return
	}
	closeBoth := func() {
		_ = up.Close()
		h.Close()
	}
	defer closeBoth()
	defer context.AfterFunc(p.streams, closeBoth)()

	c := h.Conn()
	head := bytes.NewBufferString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = resp.Header.Write(head)
	head.WriteString("\r\n")
	_ = c.SetWriteDeadline(time.Now().Add(stallTimeout))
	if _, err := c.Write(head.Bytes()); err != nil {
		return
	}
	_ = c.SetWriteDeadline(time.Time{})

	ended := make(chan error, 2)
	join := func(to io.Writer, from io.Reader) {
		defer caught(p.log, "upgraded connection", func() { ended <- errPanicked })
		_, err := io.Copy(to, from)
		if err == nil {
			err = closeWrite(to)
		}
		ended <- err
	}
	go join(up, h)
	go join(c, up)
	if err := <-ended; err == nil {
		grace := time.NewTimer(halfCloseGrace)
		defer grace.Stop()
		select {
		case <-ended:
			return
		case <-grace.C:
		}
	}
	closeBoth()
	<-ended
}

func closeWrite(w io.Writer) error {
	if c, ok := w.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
