package auth

import (
	"context"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
)

const (
	// maxReviews bounds the reviews under way for requests. Without a bound, when all clients come
	// at once, each with its own token, kube-apiserver would refuse (429) the reviews that exceed
	// one account's queues, some 300. The watches would then be passed through to it.
	// kube-apiserver answers 64 at a time about as fast.
	maxReviews = 64
	// Strangers never have more than half of them, however slowly kube-apiserver answers for their
	// tokens. Known clients leave a quarter to strangers.
	maxKnownReviews    = maxReviews * 3 / 4
	maxStrangerReviews = maxReviews / 2

	// These bound the reviews that wait, in all and of one source. A stranger's source is an
	// address, which many honest clients may share. After a restart all their tokens are new. Each
	// waiting review takes about 10 KiB beside its connection.
	maxKnownWaiting, maxKnownWaitingOfOne       = 16 << 10, 4 << 10
	maxStrangersWaiting, maxStrangersWaitingOne = 4 << 10, 1 << 10
)

// reviewQueue bounds the reviews that are under way for requests, and shares them fairly. Known
// clients and strangers wait apart. Within each class the sources take turns, one review at a time. A
// source is a user, a known token or a stranger's address. No source has more than half of its class's
// reviews under way. A review beyond the bounds of waiting is refused at once. Its methods may be
// called from any goroutine.
type reviewQueue struct {
	tokens           *KnownTokens // immutable
	known, strangers *fairness.Queue
}

func newReviewQueue(tokens *KnownTokens, m *Metrics) *reviewQueue {
	pool := fairness.NewPool(maxReviews)
	class := func(most, waiting, waitingOne int, gauge *metrics.Gauge) *fairness.Queue {
		return pool.Queue(fairness.Bounds{Seats: most, SeatsEach: most / 2, Waits: waiting, WaitsEach: waitingOne},
			fairness.Purpose{Waiting: gauge})
	}
	return &reviewQueue{ // known clients are first
		tokens:    tokens,
		known:     class(maxKnownReviews, maxKnownWaiting, maxKnownWaitingOfOne, m.known),
		strangers: class(maxStrangerReviews, maxStrangersWaiting, maxStrangersWaitingOne, m.strangers),
	}
}

// begin waits until a review of id may begin. The caller calls end after the review. begin returns
// fairness.ErrRefused at once if too many reviews wait already, and ctx's error if ctx ends first.
func (q *reviewQueue) begin(ctx context.Context, id Identity) (end func(), err error) {
	switch {
	case id.Kind == KindOwn:
		return q.known.Take(ctx, fairness.Flow{})
	case id.User != nil, q.tokens.Known(id):
		return q.known.Take(ctx, FlowOf(id, nil))
	}
	return q.strangers.Take(ctx, fairness.Address(id.From))
}

// TooManyReviews tells a client to try again later.
func (a *Authorizer) TooManyReviews() *metav1.Status {
	a.metrics.busy.Inc()
	return apistatus.TooManyRequests("too many clients wait to have their rights reviewed")
}
