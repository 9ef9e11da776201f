package passthrough

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
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/audit"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

const copyBufferSize = 32 << 10

// Forwarder forwards to kube-apiserver every request that is not served here, and its response
// back, as they come: both bodies are streamed, and what has arrived is sent on at once.
//
// An ordinary request is answered through fasthttp. One that may last (a watch, a log, an upgrade)
// gets the client's connection for itself before it goes upstream, so that a client that leaves is
// noticed although nothing is being sent, and its upstream request cancelled. A response that
// kube-apiserver breaks off ends in a broken connection, never in a proper end.
type Forwarder struct {
	upstream *upstream.Upstream
	front    *auth.FrontProxies // whose headers are not forwarded
	conns    *downstream.Connections
	long     *longRequests
	audit    *audit.Log
	log      *slog.Logger

	requests context.Context // ends the ordinary requests
	streams  context.Context // ends watches, logs and upgrades
}

// New returns what forwards requests to upstream. The ordinary ones end with requests;
// watches, logs and upgrades with streams. front says which headers are not forwarded.
func New(requests, streams context.Context, upstream *upstream.Upstream, front *auth.FrontProxies, conns *downstream.Connections,
	long *longRequests, audit *audit.Log, log *slog.Logger,
) *Forwarder {
	return &Forwarder{
		upstream: upstream,
		front:    front,
		conns:    conns,
		long:     long,
		audit:    audit,
		log:      log,
		requests: requests,
		streams:  streams,
	}
}

// Serve forwards the request of ctx, which asks for asked, in the name of id.
func (p *Forwarder) Serve(ctx *fasthttp.RequestCtx, id auth.Identity, asked *request.Request) {
	downstream.ArrivalOf(downstream.Accepted(ctx.Conn())).End() // from here on it waits for others
	audit, sent, refused := p.admit(ctx, id, asked)
	if refused != nil {
		apistatus.Write(ctx, refused)
		if body := ctx.RequestBodyStream(); body != nil && !downstream.DiscardBody(ctx.Conn(), body) {
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
	upgrade := request.UpgradeType(ctx)
	switch {
	case hasBody(ctx):
		p.forward(ctx, id, asked, req, audit, sent)
	case upgrade != "":
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", upgrade)
		p.own(ctx, id, asked, req, audit, sent, true)
	case asked.MayLast():
		p.own(ctx, id, asked, req, audit, sent, false)
	default:
		p.forward(ctx, id, asked, req, audit, sent)
	}
}

// admit waits until the request may be sent, and begins its line in the audit log. sent is to be
// called once kube-apiserver has begun to answer. refused is not nil if the request is to be
// refused.
func (p *Forwarder) admit(ctx *fasthttp.RequestCtx, id auth.Identity, asked *request.Request) (audit *audit.Passed, sent func(), refused *metav1.Status) {
	if sent, refused = p.long.admit(ctx, id); refused != nil {
		p.audit.Refused(ctx, id, asked, refused)
		return nil, nil, refused
	}
	if audit, refused = p.audit.Passing(ctx, id, asked); refused != nil {
		sent()
	}
	return audit, sent, refused
}

// hasBody reports whether the request has a body, as a length or as chunks announce it.
func hasBody(ctx *fasthttp.RequestCtx) bool {
	n := ctx.Request.Header.ContentLength()
	return n > 0 || n == -1
}

// target returns where a request line's target leads upstream, its path and query exactly as they
// were sent.
func (p *Forwarder) target(requestURI []byte) *url.URL {
	path, query, asked, _ := downstream.CutTarget(requestURI)
	to := p.upstream.URL(string(path), string(query))
	to.ForceQuery = asked
	return to
}

// hopByHop are the headers that concern one connection only (RFC 9110, section 7.6.1), and those
// that net/http sets itself.
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

// forwardHeader returns the request's header as it goes upstream. Who the client says it is does
// not go along; Upstream says that, by Authorization and Impersonate-*.
func (p *Forwarder) forwardHeader(ctx *fasthttp.RequestCtx) http.Header {
	h := make(http.Header, 12)
	for key, value := range ctx.Request.Header.All() {
		h.Add(string(key), string(value))
	}
	removeHopByHop(h)
	delete(h, "Host")
	delete(h, "Expect") // answered here
	delete(h, "Authorization")
	for name := range h {
		if p.front.SpeaksBy(name) {
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

// forward answers ctx with the response to req, whose body is streamed from the client. It calls
// sent once there is one.
func (p *Forwarder) forward(ctx *fasthttp.RequestCtx, id auth.Identity, asked *request.Request, req *http.Request, audit *audit.Passed, sent func()) {
	defer sent()
	inFlight.Add(1)
	body := &requestBody{conn: ctx.Conn(), log: p.log}
	if hasBody(ctx) {
		body.stream, body.length = ctx.RequestBodyStream(), ctx.Request.Header.ContentLength()
		req.Body, req.ContentLength = &bodyAttempt{body: body}, int64(body.length)
		req.GetBody = body.again
	} else {
		body.atEnd.Store(true)
	}
	resp, err := p.upstream.DoAs(id, req.WithContext(p.requests))
	sent()
	if err != nil {
		inFlight.Add(-1)
		p.unanswered(ctx, req, body, audit, err)
		return
	}
	countPassthrough(asked, resp.StatusCode)
	audit.Answered(resp.StatusCode)
	removeHopByHop(resp.Header)
	if resp.ContentLength < 0 && hasResponseBody(req.Method, resp) && !ctx.Request.Header.IsHTTP11() {
		// HTTP/1.0 has no chunks, and fasthttp would send some.
		body.release()
		p.conns.Hijack(ctx, func(h *downstream.Hijacked) {
			defer inFlight.Add(-1)
			p.writeResponse(h, resp, &exchange{req: req})
			h.Close()
		})
		return
	}
	p.answer(ctx, req, body, resp)
}

// unanswered answers ctx where kube-apiserver has not, because of err.
func (p *Forwarder) unanswered(ctx *fasthttp.RequestCtx, req *http.Request, body *requestBody, audit *audit.Passed, err error) {
	whole := body.release()
	st := body.failure()
	if st == nil {
		p.failed(req, err)
		st = unreachable(req, err)
	}
	apistatus.Write(ctx, st)
	audit.Failed(st)
	if !whole {
		ctx.SetConnectionClose()
	}
}

// answer makes resp the response of ctx.
func (p *Forwarder) answer(ctx *fasthttp.RequestCtx, req *http.Request, body *requestBody, resp *http.Response) {
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
	if !hasResponseBody(req.Method, resp) {
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
func (p *Forwarder) failed(req *http.Request, err error) {
	Errors.Inc()
	p.log.Debug("Upstream request failed", "method", req.Method, "path", req.URL.Path, "err", err)
}

// unreachable says that kube-apiserver did not answer. The client is told to retry only what cannot
// have taken effect.
func unreachable(req *http.Request, err error) *metav1.Status {
	st := apistatus.ServiceUnavailable("kube-apiserver cannot be reached through this proxy at the moment; " +
		"if this lasts, see the proxy's /readyz and its log for the reason")
	var dial *net.OpError
	safe := req.Method == http.MethodGet || req.Method == http.MethodHead || errors.As(err, &dial) && dial.Op == "dial"
	if !safe {
		st.Details = nil
		st.Message = "kube-apiserver broke off the connection before it answered; the request may or may not have taken effect"
	}
	return st
}

// exchange is one request on a connection taken over, and what its answer depends on.
type exchange struct {
	asked     *request.Request
	req       *http.Request
	id        auth.Identity
	audit     *audit.Passed
	sent      func() // to be called once kube-apiserver has begun to answer
	upgrade   bool
	keepAlive bool // the client may send another request
	chunked   bool // the client knows chunks
	pretty    bool // error bodies only
	auditID   string
}

// own takes the client's connection over and forwards req on it.
func (p *Forwarder) own(ctx *fasthttp.RequestCtx, id auth.Identity, asked *request.Request, req *http.Request, audit *audit.Passed, sent func(), upgrade bool) {
	x := &exchange{
		asked:     asked,
		req:       req,
		id:        id,
		audit:     audit,
		sent:      sent,
		upgrade:   upgrade,
		keepAlive: !ctx.Request.Header.ConnectionClose(),
		chunked:   ctx.Request.Header.IsHTTP11(),
		pretty:    apistatus.PrettyStatus(ctx),
		auditID:   apistatus.AuditID(ctx),
	}
	p.conns.Hijack(ctx, func(h *downstream.Hijacked) {
		defer sent()
		if p.exchange(h, x) {
			h.Resume()
		} else {
			h.Close()
		}
	})
}

// exchange forwards one request and reports whether the connection can carry another.
func (p *Forwarder) exchange(h *downstream.Hijacked, x *exchange) (reusable bool) {
	inFlight.Add(1)
	defer inFlight.Add(-1)
	Streams.Add(1)
	defer Streams.Add(-1)
	ctx, cancel := context.WithCancel(p.streams)
	defer cancel()
	go func() {
		defer request.Caught(p.log, "stream's reader", cancel)
		h.WaitRead(cancel)
	}()

	send := p.upstream.DoAs
	if x.upgrade {
		send = p.upstream.DoUpgrade
	}
	resp, err := send(x.id, x.req.WithContext(ctx))
	x.sent()
	if err != nil {
		if ctx.Err() != nil {
			x.audit.Left()
			return false // the client is gone, or we are stopping
		}
		p.failed(x.req, err)
		st := unreachable(x.req, err)
		x.audit.Failed(st)
		resp = apistatus.Response(st, x.auditID, x.pretty)
	} else {
		countPassthrough(x.asked, resp.StatusCode)
		if audit.Lasting(resp) {
			x.audit.Started(resp.StatusCode)
			defer x.audit.Answered(resp.StatusCode)
		} else {
			x.audit.Answered(resp.StatusCode)
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

// writeResponse writes resp to a connection taken over and reports whether the connection can carry
// another request.
func (p *Forwarder) writeResponse(h *downstream.Hijacked, resp *http.Response, x *exchange) (reusable bool) {
	defer resp.Body.Close()
	body := hasResponseBody(x.req.Method, resp)
	chunked := body && resp.ContentLength < 0 && x.chunked
	keepAlive := x.keepAlive && (chunked || !body || resp.ContentLength >= 0)

	c := h.Conn()
	_ = c.SetWriteDeadline(time.Now().Add(downstream.StallTimeout))
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
			_ = c.SetWriteDeadline(time.Now().Add(downstream.StallTimeout))
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
		_ = c.SetWriteDeadline(time.Now().Add(downstream.StallTimeout))
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
