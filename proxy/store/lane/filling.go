package lane

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// filling says how far a lane is with being filled for the first time, and bounds how many requests
// pass through meanwhile. If a resource takes long to list, kube-apiserver must not list it for
// each client as well.
//
//	the list makes progress            a request waits for as long as its client does. Of those that
//	                                   have waited for Wait, MostThrough lists and watches pass
//	                                   through in all, and MostThrough gets at a time, because gets
//	                                   cost little
//	an attempt broke off in the middle the same MostThrough lists and watches pass through at once;
//	                                   the others wait for the next attempt
//	an attempt failed at once, or      MostThrough pass through at a time; the others wait for their
//	attempts fail for giveUpAfter      turn or for the next attempt
//	it has brought nothing for         429, with a Retry-After that differs between clients
//	stalledAfter
//	kube-apiserver refused an attempt, waiting brings nothing: FillUseless, until a later attempt
//	or the list cannot be cached       makes progress
//
// Progress is an object of the list. The time in which the lane waits for other lanes to be listed
// does not count as silence, because each of those has a bounded time.
//
// The reflector calls InLine, Progress, End and Fail. The other methods may be called from any
// goroutine.
type filling struct {
	synced  latch     // set when the cache is first filled; by the reflector
	failing latch     // set when a first attempt to fill it has failed; by the reflector
	listed  time.Time // when the list was requested that first filled the cache; set before synced
	failed  time.Time // when a first attempt failed; set before failing

	refused atomic.Pointer[latch] // set when waiting brings nothing, and replaced when it does again; by the reflector

	through semaphore.Semaphore // acquired for each request that passes through as one of a few at a time

	began  time.Time
	heard  atomic.Int64 // when the list last brought something, in nanoseconds after began, without the time in line
	inLine atomic.Bool  // the lane waits for other lanes to be listed
	lined  time.Time    // since when it does; owned by the reflector
	empty  atomic.Bool  // the last attempt failed and brought nothing, and the next has not yet
	came   bool         // the attempt that is under way has brought something; owned by the reflector
	passed atomic.Int32 // lists and watches that have passed through as some of the first MostThrough
	room   waitingRoom
}

const (
	// MostThrough is how many requests pass through because a lane is being filled: enough to serve
	// somebody while a list hangs, and too few to slow the list down much.
	MostThrough = 4
	// AnswerWait is how long a get or a list waits for a lane at most: nine tenths of
	// kube-apiserver's default --request-timeout, which leaves a tenth for the answer.
	AnswerWait = 54 * time.Second
	// stalledAfter is for how long a list may bring nothing while requests wait for it. It is more
	// than Wait, after which the first requests pass through.
	stalledAfter = 15 * time.Second
	// giveUpAfter is for how long attempts to fill a lane may fail before requests pass through all
	// the time. A list that hangs is broken off and repeated within that time.
	giveUpAfter = 2 * time.Minute
	// watchThrough is for how long a watch that passes through counts. Its initial events cost the
	// most, and most of them have come by then.
	watchThrough = 2 * time.Second
	// fillTick is how often a request that waits checks whether its client has left, and whether
	// there is progress.
	fillTick = time.Second
)

// Wait is how long a request waits for its review, and for kube-apiserver's answers about its
// resource. After that it waits as long again for a lane that is being filled before it may be one
// of the first to pass through; see filling.
const Wait = 10 * time.Second

// latch is set once. Its Done is closed then.
type latch struct {
	context.Context
	set context.CancelFunc
}

func newLatch() (l latch) {
	l.Context, l.set = context.WithCancel(context.Background())
	return l
}

func (l latch) isSet() bool { return l.Err() != nil }

func newFilling() *filling {
	f := &filling{
		synced:  newLatch(),
		failing: newLatch(),
		through: semaphore.New(MostThrough),
		began:   time.Now(),
	}
	f.refused.Store(new(newLatch()))
	return f
}

// InLine notes whether the lane waits for other lanes to be listed.
func (f *filling) InLine(waits bool) {
	if waits {
		f.lined = time.Now()
	} else {
		f.heard.Add(int64(time.Since(f.lined)))
	}
	f.inLine.Store(waits)
}

// Progress notes that the list that is under way has brought an object.
func (f *filling) Progress() {
	f.heard.Store(int64(time.Since(f.began)))
	if !f.came {
		f.came = true
		f.empty.Store(false)
		if f.refused.Load().isSet() {
			f.refused.Store(new(newLatch()))
		}
	}
}

// End notes that the cache has been filled by a list that was requested at the given time; zero if
// it proves nothing about freshness.
func (f *filling) End(listed time.Time) {
	f.listed = listed
	f.synced.set()
}

// Fail notes that an attempt to fill the cache has failed, unless the cache is filled. troubled
// says that the next attempt may succeed soon. Otherwise waiting brings nothing.
func (f *filling) Fail(troubled bool) {
	if f.synced.isSet() {
		return
	}
	if !troubled {
		f.refused.Load().set()
	}
	f.empty.Store(troubled && !f.came)
	f.came = false
	if f.failed.IsZero() {
		f.failed = time.Now()
	}
	f.failing.set()
}

// stalled reports whether the list has brought nothing for stalledAfter, all of which a request
// that arrived at the given time has waited. A lane that waits for others to be listed is not
// stalled.
func (f *filling) stalled(arrived time.Time) bool {
	heard := f.began.Add(time.Duration(f.heard.Load()))
	if heard.Before(arrived) {
		heard = arrived
	}
	return !f.inLine.Load() && time.Since(heard) >= stalledAfter
}

// Synced reports whether the cache has been filled, so that the lane can serve reads.
func (l *Lane) Synced() bool { return l.filling.synced.isSet() }

// Filled returns a channel that is closed when the cache has been filled.
func (l *Lane) Filled() <-chan struct{} { return l.filling.synced.Done() }

// FilledAfter reports whether the whole content of the cache is newer than t. The lane is synced.
func (l *Lane) FilledAfter(t time.Time) bool { return l.filling.listed.After(t) }

// Ready waits until the lane can serve reads, and reports whether it can. It reports false if an
// attempt to fill the cache for the first time has failed, or takes longer than ctx lasts.
func (l *Lane) Ready(ctx context.Context) bool {
	if !l.Synced() {
		exchange.Waits(ctx)
	}
	select {
	case <-l.filling.synced.Done():
	case <-l.filling.failing.Done():
	case <-ctx.Done():
	}
	return l.Synced()
}
