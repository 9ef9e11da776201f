package fairness

import (
	"context"
	"errors"
	"iter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
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

	Refused *metav1.Status // the answer to the client if Begin reports false
	user    *user          // while the seat is held
	since   time.Time      // when it was taken
}

// Seat returns a seat of a user, not yet taken. Its read waits to begin for at most limit and
// MaxSeatWait, and only until left reports true. It calls waits when it begins to wait. waits and
// left may be nil.
func (q *Queue) Seat(of Flow, limit time.Duration, left func() bool, waits func()) *Seat {
	return &Seat{queue: q, flow: of, waits: waits, limit: min(limit, MaxSeatWait), left: left}
}

var (
	errSeatRefused = errors.New("too many reads of this user wait")
	errClientLeft  = errors.New("the client has left")
)

// Begin waits for the seat of a read that has not been answered yet. If the read does not get the
// seat, Begin reports false and sets Refused.
func (s *Seat) Begin() bool {
	s.Refused = nil
	switch s.take(fresh, maxSeatWaits, s.limit, s.left) {
	case nil:
		return true
	case errSeatRefused:
		if c := s.queue.purpose.Refused; c != nil {
			c.Inc()
		}
	}
	s.Refused = apistatus.TooManyRequests(s.queue.purpose.Message)
	return false
}

// Resume waits for the seat of a read that is being answered. An error says that its client has
// left, or that the server is stopping.
func (s *Seat) Resume() error { return s.take(answered, 0, 0, s.left) }

// take takes the seat. It waits only if fewer than most reads of its user wait, for limit, and
// until left reports true. A most or limit of 0 is no bound. left may be nil.
func (s *Seat) take(at stage, most int, limit time.Duration, left func() bool) error {
	q := s.queue
	q.mu.Lock()
	u := q.userLocked(s.flow)
	if len(q.ring) == 0 && q.held < q.most && u.held < q.mostEach {
		q.held++
		u.held++
		q.mu.Unlock()
		s.user, s.since = u, time.Now()
		return nil
	}
	if most > 0 && len(u.queue) >= most {
		q.mu.Unlock()
		return errSeatRefused
	}
	w := q.waitLocked(u, at)
	q.mu.Unlock()
	return s.wait(u, w, limit, left)
}

// wait waits for the seat as take does.
func (s *Seat) wait(u *user, w *seatWait, limit time.Duration, left func() bool) error {
	q := s.queue
	if s.waits != nil {
		s.waits()
	}
	began := time.Now()
	err := s.await(w, limit, left)
	if waited := q.purpose.Waited; waited != nil {
		waited(time.Since(began))
	}
	if err != nil && !q.withdraw(u, w) {
		q.release(u) // it was granted at the same moment
	}
	if err == nil {
		s.user, s.since = u, time.Now()
	}
	return err
}

func (s *Seat) await(w *seatWait, limit time.Duration, left func() bool) error {
	select {
	case <-w.granted:
		return nil
	default:
	}
	look := time.NewTicker(leftEvery)
	defer look.Stop()
	var late <-chan time.Time
	if limit > 0 {
		late = time.After(limit)
	}
	for {
		select {
		case <-w.granted:
			return nil
		case <-look.C:
			if left != nil && left() {
				return errClientLeft
			}
		case <-late:
			return errSeatRefused
		case <-s.queue.ctx.Done():
			return context.Cause(s.queue.ctx)
		}
	}
}

// Give gives the seat up, if it is held.
func (s *Seat) Give() {
	if s.user != nil {
		s.queue.release(s.user)
		s.user = nil
	}
}

// Pause lets others go first if they wait and the seat has been held for seatTime. A read that has
// begun is never refused. Pause does not look whether its client has left, because others may wait
// for the same work.
func (s *Seat) Pause() {
	if s.user == nil || s.queue.waiting.Load() == 0 || time.Since(s.since) < seatTime {
		return
	}
	q, u := s.queue, s.user
	s.user = nil
	q.mu.Lock()
	q.held--
	u.held--
	w := q.waitLocked(u, paused) // before others begin in its place
	q.mu.Unlock()
	_ = s.wait(u, w, 0, nil) // fails if the server is stopping; then the work goes on without a seat
}

// piece is the number of bytes that are compressed or sealed between two calls of Pause. It takes a
// fraction of seatTime.
const piece = 64 << 10

// Pieces returns parts in order, and divides long ones. It pauses after each piece.
func (s *Seat) Pieces(parts iter.Seq[[]byte]) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		since := 0
		for part := range parts {
			for len(part) > piece {
				if !yield(part[:piece]) {
					return
				}
				part = part[piece:]
				s.Pause()
			}
			if !yield(part) {
				return
			}
			if since += len(part); since >= piece {
				since = 0
				s.Pause()
			}
		}
	}
}
