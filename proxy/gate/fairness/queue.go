package fairness

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Queue shares a few seats fairly among flows, as kube-apiserver's API Priority and Fairness does.
// No flow has all seats. Flows that wait take turns, one seat each time: the next turn of a flow comes
// after one of each other flow that waits and may have more.
//
// kube-apiserver estimates the cost of a request, and lets it wait until seats for that cost are
// free. Work here can pause, so nothing is estimated: after seatTime the work goes to the end of
// its flow's waits if others wait. So a short read waits for at most seatTime for each other flow, and
// for each other read of its own flow that has begun, of which there are mostPaused more than have a
// seat at most.
//
// A seat is held for work alone. Only a review of a client's rights has one while kube-apiserver
// answers.
//
// Its methods may be called from any goroutine.
type Queue struct {
	// Immutable.
	pool    *Pool
	bounds  Bounds
	ctx     context.Context // ends the waits of each Seat
	purpose Purpose

	waiting atomic.Int64 // waits; it can be read without the lock

	// Guarded by pool.mu.
	held  int
	flows map[Flow]*flow // those that have a seat or wait for one
	turns list.List      // of *flow: those that may have one more seat and wait for it, the next one first
}

// Bounds are those of one Queue.
type Bounds struct {
	Seats, SeatsEach int // in all, and of one flow
	// Waits and WaitsEach bound those that wait to begin, in all and of one flow. Others are refused
	// at once. 0 is no bound.
	Waits, WaitsEach int
}

// Pool is some seats that several Queues share, each within its own bounds. A free seat goes to the
// first Queue that has somebody for it.
type Pool struct {
	seats   int          // immutable
	waiting atomic.Int64 // waits; it can be read without the lock

	mu     sync.Mutex
	held   int
	queues []*Queue
}

// NewPool returns a Pool with so many seats.
func NewPool(seats int) *Pool { return &Pool{seats: seats} }

// Queue adds a Queue behind the others. It is called before a seat is taken.
func (p *Pool) Queue(bounds Bounds, purpose Purpose) *Queue {
	q := &Queue{pool: p, bounds: bounds, ctx: context.Background(), purpose: purpose, flows: make(map[Flow]*flow)}
	p.queues = append(p.queues, q)
	return q
}

// Purpose names the use of a Queue's seats, to clients and to metrics. Its fields may be zero.
type Purpose struct {
	Message string              // tells a refused client the reason
	Refused *metrics.Counter    // counts refusals
	Waited  func(time.Duration) // observes a wait
	Waiting *metrics.Gauge      // of waits
}

// New returns a Queue for reads with so many seats, and two at least. One flow has all but one. The
// Queue ends all waits when ctx ends.
func New(ctx context.Context, seats int, purpose Purpose) *Queue {
	_, q := NewPair(ctx, seats, purpose)
	return q
}

// NewPair returns a Queue as New does, and one in front of it that shares its seats.
func NewPair(ctx context.Context, seats int, purpose Purpose) (first, q *Queue) {
	seats = max(2, seats)
	pool, bounds := NewPool(seats), Bounds{Seats: seats, SeatsEach: seats - 1, WaitsEach: maxSeatWaits}
	first, q = pool.Queue(bounds, purpose), pool.Queue(bounds, purpose)
	first.ctx, q.ctx = ctx, ctx
	return first, q
}

// flow is one Flow's part of a Queue.
type flow struct {
	id     Flow
	held   int
	paused int           // waits of its kind
	waits  list.List     // of *seatWait
	turn   *list.Element // in turns; nil if it is not there
}

// mostPaused is how many reads of a flow wait in the middle of their work, while others of it have
// seats. A list that is being compressed keeps 1.4 MB.
const mostPaused = 7

// seatWait is a Seat that waits.
type seatWait struct {
	granted chan struct{} // closed when the seat is taken
	stage   stage
	place   *list.Element // in flow.waits; nil once it has left them
}

// stage is how far the work of a read is that waits.
type stage uint8

const (
	fresh    stage = iota // nothing is done
	paused                // in the middle
	answered              // it has an answer, which is being written
)

// flowLocked returns the part of a Flow.
func (q *Queue) flowLocked(of Flow) *flow {
	f := q.flows[of]
	if f == nil {
		f = &flow{id: of}
		q.flows[of] = f
	}
	return f
}

// fullLocked reports whether one more wait to begin exceeds the bounds.
func (q *Queue) fullLocked(f *flow) bool {
	b := q.bounds
	return b.Waits > 0 && int(q.waiting.Load()) >= b.Waits || b.WaitsEach > 0 && f.waits.Len() >= b.WaitsEach
}

// waitLocked adds a wait to its flow's.
func (q *Queue) waitLocked(f *flow, at stage) *seatWait {
	w := &seatWait{granted: make(chan struct{}), stage: at}
	w.place = f.waits.PushBack(w)
	q.countLocked(f, w, 1)
	q.settleLocked(f)
	q.pool.admitLocked()
	return w
}

// leaveLocked takes a wait out of its flow's.
func (q *Queue) leaveLocked(f *flow, w *seatWait) {
	f.waits.Remove(w.place)
	w.place = nil
	q.countLocked(f, w, -1)
}

func (q *Queue) countLocked(f *flow, w *seatWait, n int) {
	if w.stage == paused {
		f.paused += n
	}
	q.waiting.Add(int64(n))
	q.pool.waiting.Add(int64(n))
	if g := q.purpose.Waiting; g != nil {
		g.Add(float64(n))
	}
}

// holdLocked counts one seat more for a flow, or one less.
func (q *Queue) holdLocked(f *flow, n int) {
	q.pool.held += n
	q.held += n
	f.held += n
}

// nextLocked returns the flow's wait that may end next; nil if none may.
func (q *Queue) nextLocked(f *flow) *seatWait {
	if f.held >= q.bounds.SeatsEach {
		return nil
	}
	all := f.held+f.paused < q.bounds.SeatsEach+mostPaused
	for e := f.waits.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*seatWait); all || w.stage != fresh {
			return w
		}
	}
	return nil
}

// settleLocked puts a flow that has changed among the turns, or removes it from there. It forgets a
// flow that neither has a seat nor waits.
func (q *Queue) settleLocked(f *flow) {
	switch may := q.nextLocked(f) != nil; {
	case may && f.turn == nil:
		f.turn = q.turns.PushBack(f)
	case !may && f.turn != nil:
		q.turns.Remove(f.turn)
		f.turn = nil
	}
	if f.held == 0 && f.waits.Len() == 0 {
		delete(q.flows, f.id)
	}
}

// admitLocked gives free seats to those whose turn it is.
func (p *Pool) admitLocked() {
	for p.held < p.seats {
		i := slices.IndexFunc(p.queues, func(q *Queue) bool { return q.turns.Len() > 0 && q.held < q.bounds.Seats })
		if i < 0 {
			return
		}
		p.queues[i].admitLocked()
	}
}

// admitLocked gives a seat to the next flow. Its next turn comes after all others'.
func (q *Queue) admitLocked() {
	f := q.turns.Remove(q.turns.Front()).(*flow)
	f.turn = nil
	w := q.nextLocked(f)
	q.leaveLocked(f, w)
	q.holdLocked(f, 1)
	q.settleLocked(f)
	close(w.granted)
}

// release gives a seat back.
func (q *Queue) release(f *flow) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	q.holdLocked(f, -1)
	q.settleLocked(f)
	q.pool.admitLocked()
}

// withdraw ends a wait. It reports false if the seat has been granted.
func (q *Queue) withdraw(f *flow, w *seatWait) bool {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if w.place == nil {
		return false
	}
	q.leaveLocked(f, w)
	q.settleLocked(f)
	q.pool.admitLocked()
	return true
}

// Held returns the number of seats that are held.
func (q *Queue) Held() int {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	return q.held
}

// Waiting returns the number of reads that wait for a seat.
func (q *Queue) Waiting() int { return int(q.waiting.Load()) }
