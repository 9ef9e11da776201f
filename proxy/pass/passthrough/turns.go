package passthrough

import (
	"context"
	"net/http/httptrace"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// longRequest is the length in bytes above which a request target counts as long. Selectors
	// make targets long. Longer selectors are not evaluated here, and therefore all long requests
	// are passed through.
	longRequest = request.MaxSelectorBytes
	// mostLong is the number of long requests that are sent to kube-apiserver at a time, each of
	// another client.
	mostLong = 2
)

// admitLong keeps long selectors from slowing down kube-apiserver for all clients.
// kube-apiserver parses the selectors of a request before it authenticates the request
// (k8s.io/apiserver pkg/endpoints/request/requestinfo.go). 58 KB of selectors take 0.1 s of its
// CPU, whether or not the client is known. Therefore:
//
//   - An unknown token is reviewed first, which takes 1 ms. A token that kube-apiserver rejects is
//     rejected here.
//   - Clients take turns. Each has at most one long request under way, until kube-apiserver begins
//     to answer it.
//
// It waits until a request of id may be sent. The caller must call sent once kube-apiserver has begun
// to answer, or will not answer. refused is the response to a rejected request, nil for an admitted one.
func (p *Forwarder) admitLong(x *exchange.Exchange, id auth.Identity) (sent func(), refused *metav1.Status) {
	if len(x.Target) <= longRequest {
		return func() {}, nil
	}
	if id.Kind == auth.KindToken && !p.Authorizer.Known(id) {
		wait, cancel := context.WithTimeout(p.requests, auth.ReviewTimeout)
		defer cancel()
		if _, somebody := p.Authorizer.UserKey(wait, id); !somebody {
			p.Metrics.unauthorized.Inc()
			return nil, apistatus.Unauthorized()
		}
	}
	turn := p.long.Seat(auth.FlowOf(id, x.Conn.RemoteAddr()), fairness.MaxSeatWait, x.Conn.Left, nil)
	if !turn.Begin() {
		return nil, turn.Refused
	}
	return turn.Give, nil
}

// mostStrangers is how many requests of strangers wait for kube-apiserver to begin to answer. Each has
// a connection of its own meanwhile. kube-apiserver answers a refused one within a few milliseconds.
const mostStrangers = 128

// takeTurn waits until a stranger's request may be sent, and makes r.sent end its turn. It returns the
// response to a request that may not. Meanwhile the client may have become known.
func (p *Forwarder) takeTurn(x *exchange.Exchange, r *passing) *metav1.Status {
	turn := p.turns.Seat(fairness.Address(r.id.From), fairness.MaxSeatWait, x.Conn.Left, nil)
	if !turn.Begin() {
		return turn.Refused
	}
	long := r.sent
	r.sent = sync.OnceFunc(func() { // also called by expect
		turn.Give()
		long()
	})
	r.holding.move(p.Authorizer.Source(r.id))
	if !r.holding.source.Stranger {
		turn.Give()
		r.sent = long
	}
	return nil
}

// expect makes kube-apiserver ask for the body of a stranger's request (RFC 9110, section 10.1.1). It
// returns the context for the request. Go's servers ask when the handler begins to read, and
// kube-apiserver's handlers do that after they have authenticated and authorized the request. So a
// request that is refused costs no memory for its body, however slowly the client sends it.
func (p *Forwarder) expect(r *passing, body *requestBody) context.Context {
	r.req.Header.Set("Expect", "100-continue")
	r.req.ProtoMajor, r.req.ProtoMinor = 1, 1 // net/http waits in HTTP/1.1 only
	return httptrace.WithClientTrace(r.holding.ctx, &httptrace.ClientTrace{Got100Continue: func() {
		r.sent()
		if entry := r.holding.addBody(); entry != nil && entry.Set(body.most) {
			body.Own()
		}
	}})
}
