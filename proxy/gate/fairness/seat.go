package fairness

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/base/machine"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
)

const (
	// seatTime is how long work may go on while others wait. It is several times the cost of a
	// pause, and short beside a network's delays.
	seatTime = 2 * time.Millisecond

	// maxSeatWaits bounds the reads of one user that wait to begin, and MaxSeatWait bounds their
	// wait. kube-apiserver's requests wait for a quarter of their time too. A read beyond these
	// bounds is told to try again.
	maxSeatWaits = 300
	MaxSeatWait  = 15 * time.Second

	// leftEvery is the time between two looks whether the client of a waiting read has left.
	leftEvery = time.Second
)

// Seat is the seat of one read. Its methods are for one goroutine at a time.
type Seat struct {
	queue *Queue
	flow  Flow
	waits func()        // called when it begins to wait; may be nil
	left  func() bool   // reports whether the client has left; may be nil
	limit time.Duration // of the wait to begin

	Worker  Worker         // is told the processor time; nil is nobody
	Refused *metav1.Status // the answer to the client if Begin reports false
	held    *flow          // while the seat is held
	since   time.Time      // when it was taken
	timed   bool           // while Worker's time runs, on one thread
	began   time.Duration  // by the clock of that thread
}

// Worker is told how much processor time the work between Begin and Give has taken.
type Worker interface{ Worked(time.Duration) }

// start starts Worker's time. Until stop, the goroutine keeps its thread, which costs nothing as long as it does
// not wait.
func (s *Seat) start() {
	if s.Worker != nil {
		runtime.LockOSThread()
		s.timed, s.began = true, machine.ThreadTime()
	}
}

// stop tells Worker the time since start. It reports whether that ran.
func (s *Seat) stop() (ran bool) {
	if ran, s.timed = s.timed, false; ran {
		s.Worker.Worked(machine.ThreadTime() - s.began)
		runtime.UnlockOSThread()
	}
	return ran
}

// Seat returns a seat of a user, not yet taken. Its read waits to begin for at most limit and
// MaxSeatWait, and only until left reports true. It calls waits when it begins to wait. waits and
// left may be nil.
func (q *Queue) Seat(of Flow, limit time.Duration, left func() bool, waits func()) *Seat {
	return &Seat{queue: q, flow: of, waits: waits, limit: min(limit, MaxSeatWait), left: left}
}

// ErrRefused says that too many wait, or that this one has waited for too long.
var ErrRefused = errors.New("too many of this user wait")

var errClientLeft = errors.New("the client has left")

// Begin waits for the seat of a read that has not been answered yet. If the read does not get the
// seat, Begin reports false and sets Refused.
func (s *Seat) Begin() bool {
	s.Refused = nil
	switch s.take(s.queue.ctx, fresh, s.limit, s.left) {
	case nil:
		s.start()
		return true
	case ErrRefused:
		if c := s.queue.purpose.Refused; c != nil {
			c.Inc()
		}
	}
	s.Refused = apistatus.TooManyRequests(s.queue.purpose.Message)
	return false
}

// Resume waits for the seat of a read that is being answered. An error says that its client has
// left, or that the server is stopping.
func (s *Seat) Resume() error { return s.take(s.queue.ctx, answered, 0, s.left) }

// Take waits for a seat until ctx ends. The caller calls give when it has done its work. Take returns
// [ErrRefused] at once if too many wait already.
func (q *Queue) Take(ctx context.Context, of Flow) (give func(), err error) {
	s := &Seat{queue: q, flow: of}
	return s.Give, s.take(ctx, fresh, 0, nil)
}

// take takes the seat. It waits for limit, until left reports true, and until ctx ends. A limit of 0
// is no bound. left may be nil.
func (s *Seat) take(ctx context.Context, at stage, limit time.Duration, left func() bool) error {
	q := s.queue
	q.pool.mu.Lock()
	f := q.flowLocked(s.flow)
	switch {
	case f.waits.Len() == 0 && f.held < q.bounds.SeatsEach && q.held < q.bounds.Seats && q.pool.held < q.pool.seats:
		q.holdLocked(f, 1)
		q.pool.mu.Unlock()
		s.held, s.since = f, time.Now()
		return nil
	case at == fresh && q.fullLocked(f):
		q.settleLocked(f)
		q.pool.mu.Unlock()
		return ErrRefused
	}
	w := q.waitLocked(f, at)
	q.pool.mu.Unlock()
	return s.wait(ctx, f, w, limit, left)
}

// wait waits for the seat as take does.
func (s *Seat) wait(ctx context.Context, f *flow, w *seatWait, limit time.Duration, left func() bool) error {
	q := s.queue
	if s.waits != nil {
		s.waits()
	}
	began := time.Now()
	err := w.await(ctx, limit, left)
	if waited := q.purpose.Waited; waited != nil {
		waited(time.Since(began))
	}
	if err != nil && !q.withdraw(f, w) {
		q.release(f) // it was granted at the same moment
	}
	if err == nil {
		s.held, s.since = f, time.Now()
	}
	return err
}

func (w *seatWait) await(ctx context.Context, limit time.Duration, left func() bool) error {
	var look, late <-chan time.Time
	if left != nil {
		look = time.Tick(leftEvery)
	}
	if limit > 0 {
		late = time.After(limit)
	}
	for {
		select {
		case <-w.granted:
			return nil
		case <-look:
			if left() {
				return errClientLeft
			}
		case <-late:
			return ErrRefused
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Give gives the seat up, if it is held.
func (s *Seat) Give() {
	s.stop()
	if s.held != nil {
		s.queue.release(s.held)
		s.held = nil
	}
}

// Pause lets others go first if they wait and the seat has been held for seatTime. A read that has
// begun is never refused. Pause does not look whether its client has left, because others may wait
// for the same work.
func (s *Seat) Pause() {
	if s.held == nil || s.queue.pool.waiting.Load() == 0 || time.Since(s.since) < seatTime {
		return
	}
	q, f, timed := s.queue, s.held, s.stop()
	s.held = nil
	q.pool.mu.Lock()
	q.holdLocked(f, -1)
	w := q.waitLocked(f, paused) // before others begin in its place
	q.pool.mu.Unlock()
	_ = s.wait(q.ctx, f, w, 0, nil) // fails if the server is stopping; then the work goes on without a seat
	if timed {
		s.start()
	}
}

// piece is the number of bytes that are compressed or sealed between two calls of Pause. It takes a
// fraction of seatTime.
const piece = 64 << 10

// Pieces returns parts in order, and divides long ones. It pauses after each piece.
func (s *Seat) Pieces(parts iter.Seq[[]byte]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		since := 0
		for part := range parts {
			for p := range slices.Chunk(part, piece) {
				if !yield(p) {
					return
				}
				if since += len(p); since >= piece {
					since = 0
					s.Pause()
				}
			}
		}
	}
}
