package passthrough

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/audit"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// Forwarder forwards to kube-apiserver every request that is not served here, and its response
// back, as they come: both bodies are streamed, and what has arrived is sent on at once.
//
// An ordinary request is answered before its handler returns. One that may last (a watch, a log, an
// upgrade) is detached before it goes upstream; see [exchange.Response]. A client that leaves is
// then noticed although nothing is being sent, and its upstream request cancelled. A response that
// kube-apiserver breaks off is broken off for the client, never ended properly.
type Forwarder struct {
	upstream *upstream.Upstream
	front    *auth.FrontProxies // whose headers are not forwarded
	long     *longRequests
	audit    *audit.Log
	log      *slog.Logger

	requests context.Context // ends the ordinary requests
	streams  context.Context // ends watches, logs and upgrades
}

// New returns what forwards requests to upstream. The ordinary ones end with requests;
// watches, logs and upgrades with streams. front says which headers are not forwarded.
func New(requests, streams context.Context, upstream *upstream.Upstream, front *auth.FrontProxies,
	long *longRequests, audit *audit.Log, log *slog.Logger,
) *Forwarder {
	return &Forwarder{
		upstream: upstream,
		front:    front,
		long:     long,
		audit:    audit,
		log:      log,
		requests: requests,
		streams:  streams,
	}
}

// passing is one request on its way, and what its answer depends on.
type passing struct {
	id      auth.Identity
	asked   *request.Request
	req     *http.Request
	audit   *audit.Passed
	sent    func() // to be called once kube-apiserver has begun to answer
	upgrade bool

	// Of the response to a request that fails here.
	auditID string
	pretty  bool
}

// Serve forwards the request of x, which asks for asked, in the name of id.
func (p *Forwarder) Serve(x *exchange.Exchange, id auth.Identity, asked *request.Request) {
	x.Conn.EndArrival() // from here on it waits for others
	audit, sent, refused := p.admit(x, id, asked)
	if refused != nil {
		apistatus.Write(x, refused)
		return
	}
	r := &passing{id: id, asked: asked, audit: audit, sent: sent}
	r.req = &http.Request{
		Method: x.Method,
		URL:    p.target(x.Target),
		Header: p.forwardHeader(x),
		Body:   http.NoBody,
	}
	upgrade := request.UpgradeType(x)
	if x.ContentLength != 0 || upgrade == "" && !asked.MayLast() {
		p.forward(x, r)
		return
	}
	if r.upgrade = upgrade != ""; r.upgrade {
		r.req.Header.Set("Connection", "Upgrade")
		r.req.Header.Set("Upgrade", upgrade)
	}
	r.auditID, r.pretty = apistatus.AuditID(x), apistatus.PrettyStatus(x)
	x.Response.Detached = func(to exchange.Responder) {
		defer sent()
		p.serveDetached(to, r)
	}
}

// admit waits until the request may be sent, and begins its line in the audit log. sent is to be
// called once kube-apiserver has begun to answer. refused is not nil if the request is to be
// refused.
func (p *Forwarder) admit(x *exchange.Exchange, id auth.Identity, asked *request.Request) (
	audit *audit.Passed, sent func(), refused *metav1.Status,
) {
	if sent, refused = p.long.admit(x, id); refused != nil {
		p.audit.Refused(x, id, asked, refused)
		return nil, nil, refused
	}
	if audit, refused = p.audit.Passing(x, id, asked); refused != nil {
		sent()
	}
	return audit, sent, refused
}

// target returns where a request line's target leads upstream, its path and query exactly as they
// were sent.
func (p *Forwarder) target(target string) *url.URL {
	t, _ := exchange.CutTarget(target)
	to := p.upstream.URL(t.Path, t.Query)
	to.ForceQuery = t.Asked
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
func (p *Forwarder) forwardHeader(x *exchange.Exchange) http.Header {
	h := make(http.Header, 12)
	for _, f := range x.Header {
		h.Add(f.Name, f.Value)
	}
	removeHopByHop(h)
	delete(h, "Host")
	delete(h, "Authorization")
	for name := range h {
		if p.front.SpeaksBy(name) {
			delete(h, name)
		}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // keeps net/http from sending its own
	}
	via := append(h["X-Forwarded-For"], x.RemoteIP().String())
	h["X-Forwarded-For"] = []string{strings.Join(via, ", ")}
	return h
}

// forward answers x with the response to r, whose body is streamed from the client.
func (p *Forwarder) forward(x *exchange.Exchange, r *passing) {
	defer r.sent()
	inFlight.Add(1)
	var body *requestBody
	if x.Body != nil {
		body = &requestBody{Body: x.Body, log: p.log}
		r.req.Body, r.req.ContentLength, r.req.GetBody = &bodyAttempt{body: body}, x.ContentLength, body.again
	}
	resp, err := p.upstream.DoAs(r.id, r.req.WithContext(p.requests))
	r.sent()
	if err != nil {
		inFlight.Add(-1)
		p.unanswered(x, r, body, err)
		return
	}
	countPassthrough(r.asked, resp.StatusCode)
	r.audit.Answered(resp.StatusCode)
	removeHopByHop(resp.Header)
	x.Response.Status = resp.StatusCode
	addFields(&x.Response.Header, resp.Header)
	x.Response.Reader, x.Response.Length = &responseBody{resp.Body}, resp.ContentLength
}

// unanswered answers x where kube-apiserver has not, because of err.
func (p *Forwarder) unanswered(x *exchange.Exchange, r *passing, body *requestBody, err error) {
	st := body.failure()
	if st == nil {
		p.failed(r.req, err)
		st = unreachable(r.req, err)
	}
	apistatus.Write(x, st)
	r.audit.Failed(st)
}

// addFields adds the fields of from, sorted by their names.
func addFields(to *exchange.Header, from http.Header) {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		for _, value := range from[name] {
			to.Add(name, value)
		}
	}
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

// serveDetached forwards a request that may last.
func (p *Forwarder) serveDetached(to exchange.Responder, r *passing) {
	inFlight.Add(1)
	defer inFlight.Add(-1)
	Streams.Add(1)
	defer Streams.Add(-1)
	ctx, cancel := context.WithCancel(p.streams)
	defer cancel()
	to.OnGone(cancel)

	send := p.upstream.DoAs
	if r.upgrade {
		send = p.upstream.DoUpgrade
	}
	resp, err := send(r.id, r.req.WithContext(ctx))
	r.sent()
	if err != nil {
		if ctx.Err() != nil {
			r.audit.Left()
			return // the client is gone, or we are stopping
		}
		p.failed(r.req, err)
		st := unreachable(r.req, err)
		r.audit.Failed(st)
		to.Respond(apistatus.Response(st, r.auditID, r.pretty))
		return
	}
	countPassthrough(r.asked, resp.StatusCode)
	if audit.Lasting(resp) {
		r.audit.Started(resp.StatusCode)
		defer r.audit.Answered(resp.StatusCode)
	} else {
		r.audit.Answered(resp.StatusCode)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		p.tunnel(to, resp)
		return
	}
	removeHopByHop(resp.Header)
	answer := &exchange.Response{Status: resp.StatusCode, Length: resp.ContentLength}
	addFields(&answer.Header, resp.Header)
	answer.Reader = newLastingBody(resp, p.streams)
	answer.Close = r.upgrade && resp.Close // what follows may have been meant for the other protocol
	to.Respond(answer)
}
