package passthrough

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/fairness"
	"github.com/watchfan/watchfan/proxy/request"
)

const (
	// longRequest is the length of a request target, in bytes, from which on it is long. Selectors
	// are what makes targets long. Those that are longer are not evaluated here, so all long
	// requests are passed through.
	longRequest = request.MaxSelectorBytes
	// mostLong is how many long requests kube-apiserver is sent at a time, each of another client.
	mostLong = 2
)

// longRequests keeps long selectors from holding up kube-apiserver, and so everybody.
// kube-apiserver parses the selectors of a request before it authenticates it (k8s.io/apiserver
// pkg/endpoints/request/requestinfo.go): 58 KB of them take it 0.1 s of CPU, whoever sends them. So
//
//   - a stranger's token is asked about first, which takes 1 ms. A token that kube-apiserver does
//     not take is refused.
//   - clients take turns. Each has one long request under way at most, until kube-apiserver begins
//     to answer it.
//
// Its methods may be called from any goroutine.
type longRequests struct {
	ctx   context.Context // ends all waits
	auth  *auth.Authorizer
	turns *fairness.Queue
}

// NewLongRequests returns what admits long requests until ctx ends.
func NewLongRequests(ctx context.Context, auth *auth.Authorizer) *longRequests {
	return &longRequests{ctx: ctx, auth: auth, turns: fairness.New(ctx, mostLong, fairness.Purpose{
		Message: "too many requests with long selectors wait",
		Refused: rejectedLong,
	})}
}

// admit waits until a request of id may be sent. The caller calls sent once kube-apiserver has
// begun to answer, or will not. refused is not nil if the request is to be refused.
func (l *longRequests) admit(x *exchange.Exchange, id auth.Identity) (sent func(), refused *metav1.Status) {
	if len(x.Target) <= longRequest {
		return func() {}, nil
	}
	if id.Kind == auth.KindToken && !l.auth.Known(id) {
		wait, cancel := context.WithTimeout(l.ctx, auth.ReviewTimeout)
		defer cancel()
		if _, somebody := l.auth.UserKey(wait, id); !somebody {
			auth.RejectedUnauthorized.Inc()
			return nil, apistatus.Unauthorized()
		}
	}
	turn := l.turns.Seat(fairness.FlowOf(id, x.Conn.RemoteAddr()), fairness.MaxSeatWait, x.Conn.Left, nil)
	longWaiting.Add(1)
	defer longWaiting.Add(-1)
	if !turn.Begin() {
		return nil, turn.Refused
	}
	return turn.Give, nil
}
