package auth

import (
	"container/list"
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/account"
	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/exchange"
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
// clients and strangers wait apart. A client is known by a token that kube-apiserver has accepted
// lately, by a certificate or by a front proxy. Within each class the sources take turns, one
// review at a time. A source is a user, a known token or a stranger's address. No source has more
// than half of its class's reviews under way. A review beyond the bounds of waiting is refused at
// once. Its methods may be called from any goroutine.
type reviewQueue struct {
	tokens *KnownTokens // immutable

	mu               sync.Mutex
	known, strangers reviewClass
}

// reviewClass holds the reviews of known clients, or those of strangers.
type reviewClass struct {
	// Immutable.
	most, mostOfOne             int // under way
	mostWaiting, mostWaitingOne int
	gauge                       *metrics.Gauge // of waiting

	underWay, waiting int
	lines             map[reviewSource]*reviewLine // those with reviews under way or waiting
	turns             list.List                    // the lines whose first review may begin, the next one first
}

// reviewSource is counted as one by the queue's fairness. At most one of its fields is set.
type reviewSource struct {
	user    string
	token   Question
	address netip.Prefix
}

// reviewLine holds the reviews of one source.
type reviewLine struct {
	source   reviewSource
	underWay int
	waiting  list.List     // of chan struct{}, each closed when its review may begin
	turn     *list.Element // in turns; nil if it is not there
}

var errReviewsBusy = errors.New("too many access reviews wait")

func newReviewQueue(tokens *KnownTokens, m *Metrics) *reviewQueue {
	class := func(most, waiting, waitingOne int, gauge *metrics.Gauge) reviewClass {
		return reviewClass{most: most, mostOfOne: most / 2, mostWaiting: waiting, mostWaitingOne: waitingOne, gauge: gauge, lines: make(map[reviewSource]*reviewLine)}
	}
	return &reviewQueue{
		tokens:    tokens,
		known:     class(maxKnownReviews, maxKnownWaiting, maxKnownWaitingOfOne, m.known),
		strangers: class(maxStrangerReviews, maxStrangersWaiting, maxStrangersWaitingOne, m.strangers),
	}
}

// begin waits until a review of id may begin. The caller calls end after the review. begin returns
// errReviewsBusy at once if too many reviews wait already, and ctx's error if ctx ends first.
func (q *reviewQueue) begin(ctx context.Context, id Identity) (end func(), err error) {
	class, source := q.classOf(id)
	q.mu.Lock()
	line := class.lines[source]
	if line == nil {
		line = &reviewLine{source: source}
		class.lines[source] = line
	}
	if class.waiting >= class.mostWaiting || line.waiting.Len() >= class.mostWaitingOne {
		class.settleLocked(line)
		q.mu.Unlock()
		return nil, errReviewsBusy
	}
	c := make(chan struct{})
	place := line.waiting.PushBack(c)
	class.wait(1)
	class.settleLocked(line)
	q.startLocked()
	q.mu.Unlock()

	select {
	case <-c:
		return func() { q.end(class, line) }, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	select {
	case <-c: // its turn came at this moment
		q.mu.Unlock()
		q.end(class, line)
		return nil, ctx.Err()
	default:
	}
	defer q.mu.Unlock()
	line.waiting.Remove(place)
	class.wait(-1)
	class.settleLocked(line)
	return nil, ctx.Err()
}

func (q *reviewQueue) end(class *reviewClass, line *reviewLine) {
	q.mu.Lock()
	defer q.mu.Unlock()
	class.underWay--
	line.underWay--
	class.settleLocked(line)
	q.startLocked()
}

// classOf returns the class and the source of a review of id.
func (q *reviewQueue) classOf(id Identity) (*reviewClass, reviewSource) {
	switch {
	case id.Kind == KindOwn:
		return &q.known, reviewSource{}
	case id.User != nil:
		return &q.known, reviewSource{user: id.User.Name}
	}
	if token := q.tokens.Of(id); token.Known() {
		return &q.known, reviewSource{token: token.hash}
	}
	return &q.strangers, reviewSource{address: id.From}
}

// startLocked begins all reviews that may begin now, those of known clients first.
func (q *reviewQueue) startLocked() {
	for {
		class := &q.known
		if !class.mayStart() {
			class = &q.strangers
		}
		if !class.mayStart() || q.known.underWay+q.strangers.underWay >= maxReviews {
			return
		}
		class.startLocked()
	}
}

func (c *reviewClass) mayStart() bool { return c.turns.Len() > 0 && c.underWay < c.most }

// startLocked begins the first review of the next line. The line's next turn comes after all
// others'.
func (c *reviewClass) startLocked() {
	line := c.turns.Remove(c.turns.Front()).(*reviewLine)
	line.turn = nil
	first := line.waiting.Remove(line.waiting.Front()).(chan struct{})
	c.wait(-1)
	c.underWay++
	line.underWay++
	c.settleLocked(line)
	close(first)
}

// settleLocked puts a line that has changed among the turns, or removes it from there. It forgets a
// line without reviews.
func (c *reviewClass) settleLocked(line *reviewLine) {
	switch may := line.waiting.Len() > 0 && line.underWay < c.mostOfOne; {
	case may && line.turn == nil:
		line.turn = c.turns.PushBack(line)
	case !may && line.turn != nil:
		c.turns.Remove(line.turn)
		line.turn = nil
	}
	if line.waiting.Len() == 0 && line.underWay == 0 {
		delete(c.lines, line.source)
	}
}

func (c *reviewClass) wait(n int) {
	c.waiting += n
	c.gauge.Add(float64(n))
}

// SourceOf returns a client's address, as the source of a stranger's reviews.
func SourceOf(x *exchange.Exchange) netip.Prefix { return account.AddressOf(x.Conn.RemoteAddr()) }

// TooManyReviews tells a client to try again later.
func (a *Authorizer) TooManyReviews() *metav1.Status {
	a.metrics.busy.Inc()
	return apistatus.TooManyRequests("too many clients wait to have their rights reviewed")
}
