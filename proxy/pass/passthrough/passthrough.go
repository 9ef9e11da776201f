package passthrough

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/audit"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Forwarder forwards every request that is not served here to kube-apiserver, and returns the
// response. Both bodies are streamed, and bytes are sent on at once. An ordinary request is
// answered before its handler returns. A request that may last (a watch, a log, an upgrade) is
// detached before it goes upstream, unless it has a body; see [exchange.Response]. A client that
// leaves is noticed even while nothing is sent, within leftEvery if its request is not detached, and
// its upstream request is cancelled. If kube-apiserver breaks off a response, the client's response
// is broken off too, never ended properly.
type Forwarder struct {
	Config
	long    *fairness.Queue // turns of long requests
	turns   *fairness.Queue // of strangers: addresses share them fairly, and none has all of them
	waiting roomWaits
	watches Watches
	lists   streamingLists

	requests context.Context // ends ordinary requests
	streams  context.Context // ends watches, logs and upgrades
}

// Config holds the dependencies of a Forwarder.
type Config struct {
	Upstream   *upstream.Upstream
	Authorizer *auth.Authorizer
	Front      *auth.FrontProxies // the headers that they set are not forwarded
	// Own reports whether kube-apiserver is known to answer for an API version itself, at once; nil is never.
	// It is not asked before kube-apiserver has let a client read, unless that takes long.
	Own     func(schema.GroupVersion) bool
	Ledger  *account.Ledger // counts what is held for clients
	Audit   *audit.Log      // nil for none
	Metrics *Metrics
	Guard   *exchange.Guard
}

// New returns a Forwarder. Ordinary requests end with requests; watches, logs and upgrades end with
// streams.
func New(requests, streams context.Context, cfg Config) *Forwarder {
	return &Forwarder{
		Config: cfg,
		lists: streamingLists{
			calls: remember.Coalescer[schema.GroupVersionResource, bool]{Guard: cfg.Guard},
			known: remember.TTLCache[schema.GroupVersionResource, knownList]{Most: mostLists},
		},
		long: fairness.New(requests, mostLong, fairness.Purpose{
			Message: "too many requests with long selectors wait",
			Refused: cfg.Metrics.long,
			Waiting: cfg.Metrics.longWaiting,
		}),
		turns: fairness.New(requests, mostStrangers, fairness.Purpose{
			Message: "too many requests of new clients wait",
			Refused: cfg.Metrics.strangers,
		}),
		requests: requests,
		streams:  streams,
	}
}

// passing is one request on its way, with what its response depends on.
type passing struct {
	id      auth.Identity
	asked   *request.Request
	req     *http.Request
	audit   *audit.Passed
	holding *holding
	sent    func() // called once kube-apiserver has begun to answer
	upgrade bool
	leave   bool            // the client is to use another connection from now on
	watch   *Watch          // nil for other requests
	recall  <-chan struct{} // see exchange.Exchange
	moved   <-chan struct{} // see exchange.Follower

	follower exchange.Follower // nil for none

	// Only for the response to a request that fails here.
	auditID string
	pretty  bool
}

// End ends the questions that no request waits for, and returns when they have ended. The streams must
// have ended.
func (p *Forwarder) End() { p.lists.calls.End() }

// Watches returns the watches that are passed through now.
func (p *Forwarder) Watches() *Watches { return &p.watches }

// Serve forwards the request of x on behalf of id, or returns the response to one that it refuses.
// asked is the parsed request. why says why it is not answered from a cache.
func (p *Forwarder) Serve(x *exchange.Exchange, id auth.Identity, asked *request.Request, why request.Reason) (refused *metav1.Status) {
	source := p.Authorizer.Source(id)
	if x.Body != nil { // before more of it comes
		if !source.Stranger {
			x.Body.Own()
		} else if !x.Body.Hold() {
			return p.Metrics.tooMuch()
		}
	}
	x.Conn.EndArrival() // from here on the request waits for other parties
	if target, _ := exchange.CutTarget(x.Target); !p.Upstream.Within(target.Path) {
		return apistatus.Failure(http.StatusNotFound, metav1.StatusReasonNotFound,
			"the server could not find the requested resource")
	}
	upgrade := request.UpgradeType(x)
	lasts := asked.MayLast() || upgrade != ""
	if trims(x, asked) && !asked.IsWatch() { // kube-apiserver ignores h2c and the parameter watch, and answers at once
		upgrade, lasts = "", false
	}
	detached := lasts && x.ContentLength == 0
	holding, refused := p.hold(x, source, lasts, detached)
	if refused != nil {
		return refused
	}
	r := &passing{id: id, asked: asked, holding: holding, recall: x.Recall, leave: x.Response.Close, follower: x.Follower}
	body := p.newBody(x, r)
	if refused, ok := p.admit(x, r, body); !ok {
		holding.close()
		return refused
	}
	x.Passed = true
	r.req = &http.Request{
		Method: x.Method,
		URL:    p.target(x.Target),
		Header: p.forwardHeader(x),
		Body:   http.NoBody,
	}
	if !detached {
		p.forward(x, r, body)
		return nil
	}
	if r.upgrade = upgrade != ""; r.upgrade {
		r.req.Header.Set("Connection", "Upgrade")
		r.req.Header.Set("Upgrade", upgrade)
	}
	if asked.IsWatch() {
		r.watch = newWatch(x, id, asked, why)
		if r.recall != nil || r.follower != nil {
			r.req.Header.Del("Accept-Encoding") // compressed bytes do not show where an event ends
		}
	}
	r.auditID, r.pretty = apistatus.AuditID(x), apistatus.PrettyStatus(x)
	x.Response.Detached = func(to exchange.Responder) {
		defer r.sent()
		p.serveDetached(to, r)
	}
	return nil
}

// admit waits until the request may be sent, and begins its line in the audit log. The caller must
// call r.sent once kube-apiserver has begun to answer. If ok is false, refused is the response, or x
// has it: that of a request that the audit log could not take.
func (p *Forwarder) admit(x *exchange.Exchange, r *passing, body *requestBody) (refused *metav1.Status, ok bool) {
	refused = p.receive(x, r, body)
	if refused == nil {
		r.sent, refused = p.admitLong(x, r.id)
	}
	if refused == nil && r.holding.source.Stranger {
		if refused = p.takeTurn(x, r); refused == nil {
			refused = p.receive(x, r, body)
		}
		if refused != nil {
			r.sent()
		}
	}
	if refused != nil {
		return refused, false
	}
	if r.audit, refused = p.Audit.Passing(x, r.id, r.asked); refused != nil {
		r.sent()
		apistatus.Write(x, refused)
		return nil, false
	}
	return nil, true
}

// target returns the upstream URL of a request target, with the path and the query exactly as sent.
func (p *Forwarder) target(target string) *url.URL {
	t, _ := exchange.CutTarget(target)
	to := p.Upstream.URL(t.Path, t.Query)
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

// forwardHeader returns the request's header for the upstream. The headers that identify the client
// are left out. Upstream identifies it with Authorization and Impersonate-*.
func (p *Forwarder) forwardHeader(x *exchange.Exchange) http.Header {
	h := make(http.Header, 12)
	for _, f := range x.Header {
		h.Add(f.Name, f.Value)
	}
	removeHopByHop(h)
	delete(h, "Host")
	delete(h, request.SeedHeader)
	for name := range h {
		if p.Front.SpeaksBy(name) {
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

// forward answers x with the response to r. The rest of the request's body is streamed from the
// client. body is nil for a request without one.
func (p *Forwarder) forward(x *exchange.Exchange, r *passing, body *requestBody) {
	defer r.sent()
	p.Metrics.inFlight.Inc()
	h := r.holding
	ctx := h.ctx
	if body != nil {
		r.req.Body, r.req.ContentLength, r.req.GetBody = &bodyAttempt{body: body}, x.ContentLength, body.again
		if h.source.Stranger {
			ctx = p.expect(r, body)
		}
	}
	if body.whole() {
		x.Sent = time.Now()
		if isBrief(r.asked) && !h.lasts {
			ctx = upstream.Brief(ctx)
		}
	}
	resp, err := p.Upstream.Pass(r.id, h.source.Stranger, r.req.WithContext(ctx))
	r.sent()
	if err == nil {
		resp, err = p.begin(r, resp)
	}
	if err != nil {
		p.Metrics.inFlight.Dec()
		left := ctx.Err() != nil && p.requests.Err() == nil
		failed := h.failure(r.req.Method, err)
		h.close()
		p.unanswered(x, r, body, err, left, failed)
		return
	}
	p.Metrics.count(r.asked, resp.StatusCode)
	r.begin(&x.Response, resp)
	from := &responseBody{resp.Body, p.Metrics, h.close}
	x.Response.Reader = from
	if instead := trim(x, r.asked, resp); instead != nil {
		r.audit.Failed(instead)
	} else {
		r.audit.Answered(resp.StatusCode)
	}
	if whole, ok := resp.Body.(*upstream.Whole); ok && x.Response.Reader == from {
		x.Response.Reader, x.Response.Body = nil, exchange.BodySlices{whole.Bytes}
		_ = from.Close()
	}
}

// isBrief reports whether kube-apiserver answers a request with one object, all at once.
func isBrief(asked *request.Request) bool {
	switch asked.Subresource {
	case "", "status", "scale", "binding", "eviction", "token":
		return asked.IsResource && (asked.Verb == "get" && asked.Method == http.MethodGet || asked.Verb == "create" ||
			asked.Verb == "update" || asked.Verb == "patch" || asked.Verb == "delete")
	}
	return false
}

// begin counts the response to r whose head has come, and says who pays for it.
func (p *Forwarder) begin(r *passing, resp *http.Response) (*http.Response, error) {
	h := r.holding
	if h.source.Stranger {
		h.move(p.Authorizer.Source(r.id))
	}
	if !h.began(resp) {
		_ = resp.Body.Close()
		return nil, errUnheld
	}
	if h.lasts && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &heldBody{resp.Body, h}
	}
	if r.follower != nil && resp.StatusCode == http.StatusOK {
		r.moved = r.follower.Began(resp.Header)
		resp.Body = &followedBody{ReadCloser: resp.Body, follower: r.follower}
	}
	return resp, nil
}

// unanswered answers x when kube-apiserver has not answered, because of err. left says that the client
// has left. failed is the response if the request was ended here, nil otherwise.
func (p *Forwarder) unanswered(x *exchange.Exchange, r *passing, body *requestBody, err error, left bool, failed *metav1.Status) {
	st := body.failure()
	if st == nil {
		st = failed
	}
	x.GivenUp = st != nil || left
	switch {
	case st != nil:
		r.audit.Failed(st)
	case left:
		st = unreachable(r.req, err) // nobody reads it
		r.audit.Left()
	default:
		st = p.failed(r.req, err)
		r.audit.Failed(st)
	}
	apistatus.Write(x, st)
}

// begin gives answer the head of kube-apiserver's response, and the length of its body. The Warning
// about a header that kube-apiserver has not seen comes before all others.
func (r *passing) begin(answer *exchange.Response, resp *http.Response) {
	removeHopByHop(resp.Header)
	if r.id.Warning != "" {
		resp.Header["Warning"] = append([]string{r.id.Warning}, resp.Header["Warning"]...)
	}
	answer.Status, answer.Length = resp.StatusCode, resp.ContentLength
	addFields(&answer.Header, resp.Header)
}

// addFields adds the fields of from, sorted by name.
func addFields(to *exchange.Header, from http.Header) {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		for _, value := range from[name] {
			to.Add(name, value)
		}
	}
}

// failed returns the response to a request that has failed upstream, and logs and counts it.
func (p *Forwarder) failed(req *http.Request, err error) *metav1.Status {
	if errors.Is(err, upstream.ErrLongHead) {
		return apistatus.Refusal(exchange.HeadTooLong)
	}
	p.Metrics.errors.Inc()
	p.Guard.Log.Debug("Upstream request failed", "method", req.Method, "path", req.URL.Path, "err", err)
	return unreachable(req, err)
}

// unreachable returns the response for a request that kube-apiserver did not answer. It tells the
// client to retry only if the request cannot have taken effect.
func unreachable(req *http.Request, err error) *metav1.Status {
	st := apistatus.ServiceUnavailable("kube-apiserver cannot be reached through this proxy at the moment; " +
		"if this lasts, see the proxy's /readyz and its log for the reason")
	var dial *net.OpError
	if !safe(req.Method) && !(errors.As(err, &dial) && dial.Op == "dial") {
		st.Details = nil
		st.Message = "kube-apiserver broke off the connection before it answered; the request may or may not have taken effect"
	}
	return st
}

// safe reports whether a request with this method changes nothing.
func safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// send sends a request that may last.
func (p *Forwarder) send(r *passing) (*http.Response, error) {
	req := r.req.WithContext(r.holding.ctx)
	if r.upgrade {
		return p.Upstream.DoUpgrade(r.id, req)
	}
	return p.Upstream.Pass(r.id, r.holding.source.Stranger, req)
}

// serveDetached forwards a request that may last.
func (p *Forwarder) serveDetached(to exchange.Responder, r *passing) {
	p.Metrics.inFlight.Inc()
	defer p.Metrics.inFlight.Dec()
	p.Metrics.streams.Inc()
	defer p.Metrics.streams.Dec()
	h := r.holding
	defer h.close()
	ctx, cancel := h.ctx, func() { h.cancel(nil) }
	to.OnGone(cancel)

	send := p.send
	if r.watch != nil && r.watch.list {
		send = p.sendList
	}
	resp, err := send(r)
	r.sent()
	if err == nil {
		resp, err = p.begin(r, resp)
	}
	if err == nil && resp.StatusCode < http.StatusMultipleChoices && r.watch != nil && selects(r.asked) {
		_ = resp.Body.Close()
		err = errUnselected
	}
	if err != nil {
		var st *metav1.Status
		switch {
		case errors.Is(err, errUnselected):
			st = unselected(r.asked)
		case errors.Is(err, errEndless):
			st = p.Metrics.noWatchList()
		case ctx.Err() != nil:
			r.audit.Left()
			return // the client is gone, the proxy is stopping, or the request has been cut
		case errors.Is(err, errUnheld):
			st = p.Metrics.tooMuch()
		default:
			st = p.failed(r.req, err)
		}
		r.audit.Failed(st)
		answer := apistatus.Response(st, r.auditID, r.pretty)
		answer.Close = r.leave
		to.Respond(answer)
		return
	}
	p.Metrics.count(r.asked, resp.StatusCode)
	if audit.Lasting(resp) {
		r.audit.Started(resp.StatusCode)
		defer r.audit.Answered(resp.StatusCode)
	} else {
		r.audit.Answered(resp.StatusCode)
	}
	if r.watch != nil && (resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusSwitchingProtocols) {
		if counter := p.Metrics.watches[r.watch.Why]; counter != nil {
			counter.Inc()
		}
		defer p.watches.began(r.watch)()
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		p.tunnel(to, resp, r)
		return
	}
	answer := &exchange.Response{}
	r.begin(answer, resp)
	body := newLastingBody(resp, r.watch, p.Metrics, p.streams)
	for _, c := range r.recalls() {
		defer onRecall(ctx, c.recall, c.after, func() { body.end(cancel) })()
	}
	answer.Reader = body
	answer.Close = r.leave || r.upgrade && resp.Close        // later bytes may be meant for the other protocol
	answer.Bare = r.upgrade && resp.Header.Get("Date") == "" // a refused handshake of a WebSocket
	to.Respond(answer)
}

// recalling recalls a watch, which then goes on for a while.
type recalling struct {
	recall <-chan struct{}
	after  func() time.Duration
}

// recalls returns what recalls a watch whose response has just begun.
func (r *passing) recalls() (all []recalling) {
	if r.watch == nil {
		return nil
	}
	if r.recall != nil {
		all = append(all, recalling{r.recall, spreadRecall})
	}
	if began := time.Now(); r.moved != nil && r.asked.AllowWatchBookmarks {
		all = append(all, recalling{r.moved, func() time.Duration { return recallAfter - time.Since(began) }})
	}
	return all
}
