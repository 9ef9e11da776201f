package lane

import (
	"context"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/gate/fairness"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// FillEnd is the end of a request's wait for its lane.
type FillEnd int

const (
	FillReady   FillEnd = iota // the lane can serve it
	FillPassed                 // it passes through, as one of the few that may
	FillUseless                // no wait brings the lane
	FillFailed                 // it is refused
	FillLeft                   // its client has left
)

// Waiter is a request that waits for a lane to be filled. It has a goroutine, holds no seat, and
// takes about 5 KiB beside its connection.
type Waiter struct {
	Verb     string
	User     fairness.Flow
	Arrived  time.Time
	Patience time.Duration // how long it waits at most, from Arrived on
	Left     func() bool   // reports whether its client has left
}

// Await waits until the lane can serve w, or w must pass through or be refused. If w passes
// through, the caller closes slot when w has been answered; slot may be nil. Once the server stops,
// w is refused: another replica may serve it.
func (l *Lane) Await(ctx context.Context, w Waiter) (end FillEnd, slot Slot) {
	if l.Synced() {
		return FillReady, nil
	}
	f := l.filling
	if !f.room.enter(w.User) {
		return FillFailed, nil
	}
	defer f.room.leave(w.User)
	exchange.Waits(ctx)
	end, slot = f.wait(ctx, l.lanes.draining, w)
	if l.Synced() {
		slot.Close()
		return FillReady, nil
	}
	if end == FillPassed {
		l.metrics.fillingPassed.Inc()
	}
	return end, slot
}

// wait is Await for a lane that is not filled. It returns FillFailed when ctx or draining ends.
func (f *filling) wait(ctx, draining context.Context, w Waiter) (FillEnd, Slot) {
	patience := w.Patience - time.Since(w.Arrived)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(draining, cancel)()
	first := time.NewTimer(min(Wait, patience/2))
	defer first.Stop()
	tick := time.NewTicker(fillTick)
	defer tick.Stop()
	failing, through := f.failing.Done(), semaphore.Semaphore(nil) // nil is never ready
	for late := false; ; {
		mayPass := false
		select {
		case <-f.synced.Done():
			return FillReady, nil
		case <-f.refused.Load().Done():
			return FillUseless, nil
		case <-failing:
			failing, mayPass = nil, !f.refused.Load().isSet()
		case <-first.C:
			mayPass = true
		case through <- struct{}{}:
			if w.Verb != "get" {
				f.passed.Add(1)
			}
			return FillPassed, NewSlot(w.Verb == "watch", through.Release)
		case <-tick.C:
			if w.Left() {
				return FillLeft, nil
			}
			if f.stalled(w.Arrived) {
				return FillFailed, nil
			}
		case <-ctx.Done():
			return FillFailed, nil
		}
		late = late || mayPass
		switch through = nil; {
		case late && w.Verb == "get", failing == nil && (f.empty.Load() || time.Since(f.failed) >= giveUpAfter):
			through = f.through
		case mayPass && f.passed.Add(1) <= MostThrough:
			return FillPassed, nil
		}
	}
}

const (
	// mostWaiting and mostWaitingOfOne bound the requests that wait for one lane, in all and of one
	// user: one user's requests leave room for those of others.
	mostWaiting      = 16 << 10
	mostWaitingOfOne = mostWaiting / 2
)

// waitingRoom counts the requests that wait for a lane. Its methods may be called from any
// goroutine. The zero value is empty.
type waitingRoom struct {
	mu    sync.Mutex
	all   int
	users map[fairness.Flow]int
}

// enter counts a request of a user, and reports whether there was room for it.
func (r *waitingRoom) enter(user fairness.Flow) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= mostWaiting || r.users[user] >= mostWaitingOfOne {
		return false
	}
	if r.users == nil {
		r.users = make(map[fairness.Flow]int)
	}
	r.all++
	r.users[user]++
	return true
}

func (r *waitingRoom) leave(user fairness.Flow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.users[user]--; r.users[user] == 0 {
		delete(r.users, user)
	}
}

// Len returns the number of requests that wait.
func (r *waitingRoom) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// Slot gives up the place of a request that passes through as one of a few. It is closed when the
// response has been written, or runs without the handler; see [exchange.Exchange.Until]. nil is no
// place.
type Slot func()

// NewSlot returns a slot that release gives up. watch says that the request is a watch: it keeps its
// slot for watchThrough longer.
func NewSlot(watch bool, release func()) Slot {
	if watch {
		return sync.OnceFunc(func() { time.AfterFunc(watchThrough, release) })
	}
	return sync.OnceFunc(release)
}

// Close gives the slot up. It may be called more than once.
func (s Slot) Close() error {
	if s != nil {
		s()
	}
	return nil
}
