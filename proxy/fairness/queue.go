package fairness

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/auth"
)

// Queue shares the processors fairly among the users of cached reads, as kube-apiserver's API
// Priority and Fairness does for its own. What takes time in proportion to a collection is done in
// a seat: to search it, to collect a list's items, to compress them, to reconstruct a past state,
// and to seal a long body for TLS. There are a few seats, one user never has all of them, and users
// with work take turns, one seat each time.
//
// Kube-apiserver estimates what a request will cost and has it wait until that much is free. Work
// here can stop in the middle, so nothing is estimated: after seatTime it goes back to the end of
// its user's queue if anybody waits. A short read waits for seatTime at most for each other user,
// however long their reads are, and for each other read of its own user.
//
// A seat is held for work alone, never while waiting for a client, for kube-apiserver or for
// another read. Writes, whatever is passed through, gets of single objects, and events have no part
// in this.
//
// Its methods may be called from any goroutine.
type Queue struct {
	// Immutable.
	Most, mostEach int             // seats in all, and of one user
	ctx            context.Context // ends all waits
	purpose        Purpose

	Waits atomic.Int64 // how many seats are waited for; a copy, to be read without mu

	mu    sync.Mutex
	held  int
	users map[Flow]*fairUser // who have a seat or wait for one
	ring  []*fairUser        // who wait, in the order of their turns
	spare *fairUser          // memory for the next user
}

// fairUser is one user's part.
type fairUser struct {
	flow  Flow
	held  int
	queue []*seatWait
}

// seatWait is one that waits for a seat.
type seatWait struct {
	granted chan struct{} // closed when it has one
}

// Flow tells users apart. A token counts for itself: kube-apiserver is not asked whose it is, and
// the pods of a DaemonSet, which share an account and come back together, are many. On the insecure
// port, where everybody is the proxy itself, a connection does. Of anonymous clients an address
// does.
type Flow struct {
	kind auth.Kind
	name string
	hash uint64 // of a token, or a connection's port
}

var flowSeed = maphash.MakeSeed()

func FlowOf(id auth.Identity, from net.Addr) Flow {
	switch {
	case id.User != nil:
		return Flow{name: id.User.Name, kind: auth.KindCertificate} // however it was shown
	case id.Kind == auth.KindAnonymous:
		return Flow{kind: auth.KindAnonymous, name: id.From.String()}
	case id.Kind == auth.KindToken:
		return Flow{kind: auth.KindToken, hash: maphash.String(flowSeed, id.Token)}
	}
	f := Flow{kind: id.Kind}
	if tcp, ok := from.(*net.TCPAddr); ok {
		f.hash = uint64(tcp.Port)
	}
	return f
}

const (
	// seatTime is how long work may go on while others wait: several times what it costs to let
	// another go first, and little beside a network's delays.
	seatTime = 2 * time.Millisecond

	// maxSeatWaits bounds the reads of one user that wait to begin, and maxSeatWait for how long:
	// kube-apiserver's wait for a quarter of a request's time too. Those beyond are told to come
	// again.
	maxSeatWaits = 300
	MaxSeatWait  = 15 * time.Second

	// leftEvery is how often it is found out whether the client of a read that waits is still
	// there.
	leftEvery = time.Second
)

// Purpose says what seats are for, to clients and to metrics. Its fields may be nil.
type Purpose struct {
	Message string              // tells a client that is refused why
	Refused *metrics.Counter    // counts those
	Waited  func(time.Duration) // counts a wait
}

// New returns a fairness for so many processors, which ends all waits when ctx ends.
func New(ctx context.Context, processors int, purpose Purpose) *Queue {
	most := max(2, processors)
	return &Queue{Most: most, mostEach: most - 1, ctx: ctx, purpose: purpose, users: make(map[Flow]*fairUser)}
}

// Seat is one read's. Its methods are for one goroutine at a time.
type Seat struct {
	fair  *Queue
	flow  Flow
	waits func()        // called when it begins to wait; nil is nothing
	left  func() bool   // reports whether the client is gone
	limit time.Duration // for how long it may wait to begin

	Refused *metav1.Status // why it may not begin
	user    *fairUser      // while it is held
	since   time.Time      // when it was taken
}

// Seat returns a seat, not yet taken, of a user. Its work waits for at most limit, and maxSeatWait,
// to begin, until left reports true. It calls waits when it begins to wait. waits and left may be
// nil.
func (f *Queue) Seat(of Flow, limit time.Duration, left func() bool, waits func()) *Seat {
	return &Seat{fair: f, flow: of, waits: waits, limit: min(limit, MaxSeatWait), left: left}
}

var (
	errSeatRefused = errors.New("too many reads of this user wait")
	errClientLeft  = errors.New("the client has left")
)

// Begin takes the seat for a read that has not been answered yet, waiting for it. If that can't be,
// it reports false and sets refused.
func (s *Seat) Begin() bool {
	s.Refused = nil
	switch s.take(maxSeatWaits, s.limit, s.left) {
	case nil:
		return true
	case errSeatRefused:
		if c := s.fair.purpose.Refused; c != nil {
			c.Inc()
		}
	}
	s.Refused = apistatus.TooManyRequests(s.fair.purpose.Message)
	return false
}

// Resume takes the seat for a read that is being answered. An error says that its client has left,
// or that we are stopping.
func (s *Seat) Resume() error { return s.take(0, 0, s.left) }

// take takes the seat. It waits only if fewer than most of its user do, and for limit, 0 being any
// number and any time, and until left, which may be nil, reports true.
func (s *Seat) take(most int, limit time.Duration, left func() bool) error {
	f := s.fair
	f.mu.Lock()
	u := f.userLocked(s.flow)
	if len(f.ring) == 0 && f.held < f.Most && u.held < f.mostEach {
		f.held++
		u.held++
		f.mu.Unlock()
		s.user, s.since = u, time.Now()
		return nil
	}
	if most > 0 && len(u.queue) >= most {
		f.mu.Unlock()
		return errSeatRefused
	}
	w := &seatWait{granted: make(chan struct{})}
	if u.queue = append(u.queue, w); len(u.queue) == 1 {
		f.ring = append(f.ring, u)
	}
	f.Waits.Add(1)
	f.admitLocked()
	f.mu.Unlock()

	if s.waits != nil {
		s.waits()
	}
	began := time.Now()
	err := s.await(w, limit, left)
	if waited := f.purpose.Waited; waited != nil {
		waited(time.Since(began))
	}
	if err != nil && !f.withdraw(u, w) {
		f.release(u) // it was granted at the same moment
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
		case <-s.fair.ctx.Done():
			return context.Cause(s.fair.ctx)
		}
	}
}

// Give gives the seat up, if it is held.
func (s *Seat) Give() {
	if s.user != nil {
		s.fair.release(s.user)
		s.user = nil
	}
}

// Pause lets others go first if they wait and the seat has been held for long. What has begun is
// never refused, and its client is not looked for: others may wait for the same.
func (s *Seat) Pause() {
	if s.user == nil || s.fair.Waits.Load() == 0 || time.Since(s.since) < seatTime {
		return
	}
	s.Give()
	_ = s.take(0, 0, nil) // or we are stopping, and it goes on without
}

// userLocked returns the user's part.
func (f *Queue) userLocked(of Flow) *fairUser {
	if u := f.users[of]; u != nil {
		return u
	}
	u := f.spare
	if f.spare = nil; u == nil {
		u = &fairUser{}
	}
	u.flow = of
	f.users[of] = u
	return u
}

func (f *Queue) release(u *fairUser) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held--
	u.held--
	f.admitLocked()
	f.forgetLocked(u)
}

// forgetLocked forgets a user who neither has a seat nor waits.
func (f *Queue) forgetLocked(u *fairUser) {
	if u.held == 0 && len(u.queue) == 0 {
		delete(f.users, u.flow)
		*u = fairUser{}
		f.spare = u
	}
}

// admitLocked gives free seats to those whose turn it is.
func (f *Queue) admitLocked() {
	for i := 0; f.held < f.Most && i < len(f.ring); {
		u := f.ring[i]
		if u.held >= f.mostEach {
			i++
			continue
		}
		w := u.queue[0]
		u.queue[0] = nil
		u.queue = u.queue[1:]
		f.ring = slices.Delete(f.ring, i, i+1)
		if len(u.queue) > 0 {
			f.ring = append(f.ring, u)
		}
		f.held++
		u.held++
		f.Waits.Add(-1)
		close(w.granted)
	}
}

// withdraw ends a wait. It reports false if that has been granted.
func (f *Queue) withdraw(u *fairUser, w *seatWait) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(u.queue, w)
	if i < 0 {
		return false
	}
	u.queue = slices.Delete(u.queue, i, i+1)
	f.Waits.Add(-1)
	if len(u.queue) == 0 {
		f.ring = slices.DeleteFunc(f.ring, func(other *fairUser) bool { return other == u })
		f.forgetLocked(u)
	}
	return true
}

// Seats is how many are held.
func (f *Queue) Seats() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}

// piece is how much is compressed or sealed between two looks at the time: a fraction of seatTime's
// worth.
const piece = 64 << 10

// Pieces returns parts as they are, cut where they are long, with a pause after each piece.
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
