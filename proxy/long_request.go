package proxy

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// longRequest is the length of a request target, in bytes, from which on it is long. Selectors are what makes targets
	// long. Those that are longer are not evaluated here, so all long requests are passed through.
	longRequest = maxSelectorBytes
	// mostLong is how many long requests kube-apiserver is sent at a time, each of another client.
	mostLong = 2
	// longWait is how long one waits for its turn.
	longWait = 15 * time.Second
)

// longRequests keeps long selectors from holding up kube-apiserver, and so everybody. kube-apiserver parses the
// selectors of a request before it authenticates it (k8s.io/apiserver pkg/endpoints/request/requestinfo.go): 58 KB of
// them take it 0.1 s of CPU, whoever sends them. So
//
//   - a stranger's token is asked about first, which takes 1 ms. A token that kube-apiserver does not take is refused.
//   - clients take turns. Each has one long request under way at most, until kube-apiserver begins to answer it.
//
// Its methods may be called from any goroutine.
type longRequests struct {
	ctx   context.Context // ends all waits
	auth  *authorizer
	turns *fairness
}

func newLongRequests(ctx context.Context, auth *authorizer) *longRequests {
	return &longRequests{ctx: ctx, auth: auth, turns: newFairness(ctx, mostLong, seatPurpose{
		message: "too many requests with long selectors wait",
		refused: rejectedLong,
	})}
}

// admit waits until a request of id may be sent. The caller calls sent once kube-apiserver has begun to answer, or will
// not. refused is not nil if the request is to be refused.
func (l *longRequests) admit(ctx *fasthttp.RequestCtx, id identity) (sent func(), refused *metav1.Status) {
	if len(ctx.Request.Header.RequestURI()) <= longRequest {
		return func() {}, nil
	}
	if id.kind == kindToken && !l.auth.queue.tokens.has(id) {
		wait, cancel := context.WithTimeout(l.ctx, reviewTimeout)
		defer cancel()
		if _, somebody := l.auth.userKey(wait, id); !somebody {
			rejectedUnauthorized.Inc()
			return nil, unauthorized()
		}
	}
	conn := accepted(ctx.Conn())
	turn := l.turns.seat(flowOf(id, conn.RemoteAddr()), longWait, func() bool { return hasLeft(tcpConn(conn)) }, nil)
	longWaiting.Add(1)
	defer longWaiting.Add(-1)
	if !turn.begin() {
		return nil, turn.refused
	}
	return turn.Give, nil
}
