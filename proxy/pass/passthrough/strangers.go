package passthrough

import (
	"context"
	"net/http/httptrace"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

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
