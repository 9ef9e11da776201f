package proxy

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// handling is a request on its way through Handle.
type handling struct {
	*exchange.Exchange
	req       *request.Request
	cacheable bool
	noView    *metav1.Status  // refuses a path of a view that there is not
	client    auth.Identity   // who asks
	id        auth.Identity   // in whose name
	wait      context.Context // of the checks that ask kube-apiserver
	opened    bool            // it is the first of a known client on its connection
	warn      func()          // adds to the response that refuses it; nil adds nothing
}

// checks are the conditions of all requests, in their order. Each returns the response to a request
// that it refuses.
var checks = []func(*Server, *handling) *metav1.Status{
	(*Server).checkOrigin,
	(*Server).checkLoop,
	(*Server).identify,
	(*Server).actAs,
	(*Server).checkView,
	(*Server).admit,
}

// Handle answers one request from a cache, or passes it through. A protocol calls it; see package
// exchange. It may be called from any goroutine.
func (s *Server) Handle(x *exchange.Exchange) {
	nobody := auth.Identity{Kind: auth.KindNobody}
	h := &handling{Exchange: x, client: nobody, id: nobody, wait: exchange.WithArrival(s.ctx, x.Conn)}
	defer func() { s.consumers.Answered(x, h.id, h.req, h.opened) }()
	in, noView := s.views.Enter(x) // before anything else reads the target
	h.req, h.cacheable = request.Parse(x)
	h.req.View, h.noView = in, noView
	if !h.req.MayLast() && request.UpgradeType(x) == "" {
		x.Due = x.Received.Add(h.req.AnswerTime(downstream.RequestTimeout))
	}
	defer s.knowConnection(h) // kube-apiserver may have accepted the client by then
	for _, check := range checks {
		if refused := check(s, h); refused != nil {
			s.end(x, h.id, h.req, request.Refuse(refused))
			if h.warn != nil {
				h.warn()
			}
			return
		}
	}
	switch why := h.req.Uncacheable; {
	case h.req.Seed != "":
		s.cached.ServeSeed(x, h.id, h.req, h.cacheable)
	case s.fallback != nil:
		s.fallBack(h)
	case h.cacheable && h.id.Kind != auth.KindAnonymous:
		s.cached.Serve(x, h.id, h.req)
	case h.cacheable:
		s.end(x, h.id, h.req, request.PassThrough(request.Anonymous))
	default:
		s.end(x, h.id, h.req, request.PassThrough(why))
	}
}

// fallBack passes a request through that a fall-back answers.
func (s *Server) fallBack(h *handling) {
	o := request.PassThrough(request.Fallback)
	if h.req.IsWatch() {
		h.Conn.EndArrival()
		h.Recall = h.Conn.Dismissed()
		if refused := s.fallback.AwaitStart(h.wait, s.authorizer.Source(h.id)); refused != nil {
			o = request.Refuse(refused)
		}
	}
	s.end(h.Exchange, h.id, h.req, o)
}

// end ends a request of id that no cache has answered. All refusals are written here, and recorded in
// the audit log, because kube-apiserver never sees their requests.
func (s *Server) end(x *exchange.Exchange, id auth.Identity, req *request.Request, o request.Outcome) {
	refused := o.Refusal()
	if why := o.Why(); why != "" {
		if refused = s.consumers.Admit(s.ctx, x, id, req); refused == nil {
			refused = s.passthrough.Serve(x, id, req, why)
		}
	}
	if refused != nil {
		apistatus.Write(x, refused)
		s.audit.Refused(x, id, req, refused)
	}
}

// checkOrigin refuses requests of web pages at the plaintext port.
func (s *Server) checkOrigin(h *handling) *metav1.Status {
	if h.Conn.Secure() || localExchange(h.Exchange) {
		return nil
	}
	s.metrics.foreignHost.Inc()
	return apistatus.Failure(http.StatusForbidden, metav1.StatusReasonForbidden,
		"this port serves programs on this host and pages of its own only, no requests or links of other web pages")
}

// checkLoop refuses a request that has already passed this watchfan.
func (s *Server) checkLoop(h *handling) *metav1.Status {
	if !s.upstream.Via.Marked(h.Exchange) {
		return nil
	}
	if h.req.Seed == "" { // a replica finds itself among its siblings
		s.metrics.loop.Inc()
	}
	return upstream.LoopDetected()
}

// identify finds out who asks.
func (s *Server) identify(h *handling) *metav1.Status {
	id, refused := s.clients.Identify(h.Exchange)
	if refused != nil {
		s.metrics.unauthorized.Inc()
		if refused.Code == http.StatusUnauthorized {
			h.warn = func() { auth.WarnUnauthorized(h.Exchange) }
		}
		return refused
	}
	id.From = auth.SourceOf(h.Exchange)
	h.client, h.id = id, id
	s.knowConnection(h)
	return nil
}

// knowConnection notes who pays for the connection, once that client is known.
func (s *Server) knowConnection(h *handling) {
	if !h.Conn.Payer().Stranger {
		return
	}
	if source := s.authorizer.ConnectionSource(h.client); !source.Stranger {
		h.Conn.KnownAs(source)
		h.opened = true
	}
}

// actAs finds out in whose name the client asks, and whether it may.
func (s *Server) actAs(h *handling) *metav1.Status {
	id, refused := s.authorizer.ActAs(h.wait, h.client, h.Header)
	if refused != nil {
		s.metrics.impersonation.Inc()
		return refused
	}
	h.id = id
	s.metrics.identified[id.Kind].Inc()
	h.Response.Close = h.Response.Close || h.Protocol == exchange.HTTP20 && h.client.Unauthenticated() // as kube-apiserver
	return nil
}

// checkView counts a request in its view, and refuses one that is not in a view that there is, or
// that writes.
func (s *Server) checkView(h *handling) *metav1.Status {
	in := h.req.View
	if in == nil && h.noView == nil {
		var refused *metav1.Status
		if in, refused = s.ruledView(h); refused != nil {
			return refused
		}
	}
	switch {
	case h.noView != nil:
		return h.noView
	case in == nil:
		return nil
	case !h.req.OnlyReads(h.Exchange):
		h.warn = func() { h.Response.Header.Add("Allow", "GET, HEAD, OPTIONS") } // RFC 9110, section 15.5.6
		return in.ReadOnly()
	case in.Selects(h.req.GVR.GroupResource()) && h.req.MetricVerb() != "other":
		if refused := h.withoutTables(); refused != nil {
			return refused
		}
	}
	in.Count(h.req.MetricVerb())
	return nil
}

// ruledView returns the view in which a rule of the configuration has the client read, if this is a read of
// objects. Its client knows nothing of the view, and writes at the same server. So a write is refused if
// it would replace an object that the client may have read without all of its fields.
func (s *Server) ruledView(h *handling) (in *view.View, refused *metav1.Status) {
	if !h.req.IsResource {
		return nil, nil
	}
	in = s.cached.RuledView(h.wait, h.Exchange, h.id, h.req)
	switch {
	case in == nil:
		return nil, nil
	case h.req.Verb == "update" && in.Changes(h.req.GVR.GroupResource()):
		return nil, in.ReadOnly()
	case h.req.MetricVerb() == "other":
		return nil, nil
	}
	h.req.View, h.req.Ruled = in, true
	return in, nil
}

// withoutTables makes the request one that a cache can answer whose view has a part of the objects: it
// accepts no Tables, whose rows don't say which those are. kubectl accepts JSON too, and prints it itself.
func (h *handling) withoutTables() *metav1.Status {
	all := strings.Split(h.Header.Get("Accept"), ",")
	accepted := slices.DeleteFunc(slices.Clone(all), request.ForTable)
	switch len(accepted) {
	case len(all):
		return nil
	case 0:
		return apistatus.Failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, fmt.Sprintf(
			"the view %s has no Tables of %s: accept application/json too", h.req.View.Name(), h.req.GVR.Resource))
	}
	in, ruled := h.req.View, h.req.Ruled
	h.Header.Set("Accept", strings.Join(accepted, ","))
	h.req, h.cacheable = request.Parse(h.Exchange)
	h.req.View, h.req.Ruled = in, ruled
	return nil
}

// admit counts a watch, and refuses reads beyond the limits.
func (s *Server) admit(h *handling) *metav1.Status {
	slot, refused := s.admission.Begin(h.wait, h.id, h.req, h.cacheable)
	if slot != nil {
		h.Slot = slot
	}
	return refused
}
