package passthrough

import (
	"context"

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
	p.Metrics.longWaiting.Inc()
	defer p.Metrics.longWaiting.Dec()
	if !turn.Begin() {
		return nil, turn.Refused
	}
	return turn.Give, nil
}
