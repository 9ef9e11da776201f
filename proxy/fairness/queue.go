package fairness

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Queue shares a few seats fairly among users, as kube-apiserver's API Priority and Fairness does.
// One user never has all seats. Users that wait take turns, one seat each time.
//
// kube-apiserver estimates the cost of a request, and lets it wait until seats for that cost are
// free. Work here can pause, so nothing is estimated: after seatTime the work goes to the end of
// its user's queue if others wait. So a short read waits for at most seatTime for each other user,
// however long their reads are, and for each other read of its own user that has begun. Those keep
// memory, so a user has begun mostPaused more than have a seat at most. The next begins when one has
// ended.
//
// A seat is held for work alone, never while waiting for a client, for kube-apiserver or for
// another read.
//
// Its methods may be called from any goroutine.
type Queue struct {
	// Immutable.
	most, mostEach int             // seats in all, and of one user
	ctx            context.Context // ends all waits
	purpose        Purpose

	waiting atomic.Int64 // seatWaits; it can be read without mu

	mu    sync.Mutex
	held  int
	users map[Flow]*user // those that have a seat or wait for one
	ring  []*user        // those that wait, in the order of their turns
	spare *user          // memory for the next user
}

// user is one user's part of a Queue.
type user struct {
	flow   Flow
	held   int
	paused int // waits of queue
	queue  []*seatWait
}

// mostPaused is how many reads of a user wait in the middle of their work, while others of it have
// seats. A list that is being compressed keeps 1.4 MB.
const mostPaused = 7

// seatWait is a Seat that waits.
type seatWait struct {
	granted chan struct{} // closed when the seat is taken
	stage   stage
}

// stage is how far the work of a read is that waits.
type stage uint8

const (
	fresh    stage = iota // nothing is done
	paused                // in the middle
	answered              // it has an answer, which is being written
)

// nextLocked returns the user's wait that may end next; -1 if none may.
func (q *Queue) nextLocked(u *user) int {
	if u.held >= q.mostEach {
		return -1
	}
	if u.held+u.paused < q.mostEach+mostPaused {
		return 0
	}
	return slices.IndexFunc(u.queue, func(w *seatWait) bool { return w.stage != fresh })
}

// waitLocked puts a wait into its user's queue.
func (q *Queue) waitLocked(u *user, at stage) *seatWait {
	w := &seatWait{granted: make(chan struct{}), stage: at}
	if at == paused {
		u.paused++
	}
	if u.queue = append(u.queue, w); len(u.queue) == 1 {
		q.ring = append(q.ring, u)
	}
	q.waiting.Add(1)
	q.admitLocked()
	return w
}

// leaveLocked takes a wait out of its user's queue.
func (q *Queue) leaveLocked(u *user, i int) *seatWait {
	w := u.queue[i]
	u.queue = slices.Delete(u.queue, i, i+1)
	if w.stage == paused {
		u.paused--
	}
	q.waiting.Add(-1)
	return w
}

// Purpose names the use of a Queue's seats, to clients and to metrics. Its fields may be zero.
type Purpose struct {
	Message string              // tells a refused client the reason
	Refused *metrics.Counter    // counts refusals
	Waited  func(time.Duration) // observes a wait
}

// New returns a Queue with so many seats, and two at least. It ends all waits when ctx ends.
func New(ctx context.Context, seats int, purpose Purpose) *Queue {
	most := max(2, seats)
	return &Queue{most: most, mostEach: most - 1, ctx: ctx, purpose: purpose, users: make(map[Flow]*user)}
}

// userLocked returns the user's part.
func (q *Queue) userLocked(of Flow) *user {
	if u := q.users[of]; u != nil {
		return u
	}
	u := q.spare
	if q.spare = nil; u == nil {
		u = &user{}
	}
	u.flow = of
	q.users[of] = u
	return u
}

func (q *Queue) release(u *user) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held--
	u.held--
	q.admitLocked()
	q.forgetLocked(u)
}

// forgetLocked forgets a user that neither has a seat nor waits.
func (q *Queue) forgetLocked(u *user) {
	if u.held == 0 && len(u.queue) == 0 {
		delete(q.users, u.flow)
		*u = user{}
		q.spare = u
	}
}

// admitLocked gives free seats to the users whose turn it is.
func (q *Queue) admitLocked() {
	for i := 0; q.held < q.most && i < len(q.ring); {
		u := q.ring[i]
		next := q.nextLocked(u)
		if next < 0 {
			i++
			continue
		}
		w := q.leaveLocked(u, next)
		q.ring = slices.Delete(q.ring, i, i+1)
		if len(u.queue) > 0 {
			q.ring = append(q.ring, u)
		}
		q.held++
		u.held++
		close(w.granted)
	}
}

// withdraw ends a wait. It reports false if the seat has been granted.
func (q *Queue) withdraw(u *user, w *seatWait) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(u.queue, w)
	if i < 0 {
		return false
	}
	q.leaveLocked(u, i)
	if len(u.queue) == 0 {
		q.ring = slices.DeleteFunc(q.ring, func(other *user) bool { return other == u })
		q.forgetLocked(u)
	}
	return true
}

// Seats returns the number of seats.
func (q *Queue) Seats() int { return q.most }

// Held returns the number of seats that are held.
func (q *Queue) Held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held
}

// Waiting returns the number of reads that wait for a seat.
func (q *Queue) Waiting() int { return int(q.waiting.Load()) }
