package lane

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/proxy/exposition"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/semaphore"
)

// filling says how far a lane is with being filled for the first time, and bounds how many requests
// pass through meanwhile. If a resource takes long to list, kube-apiserver must not list it for
// each client as well.
//
//	the first attempt is under way         a request waits. Of those that have waited for Wait,
//	                                       MostThrough lists and watches pass through in all, and
//	                                       MostThrough gets at a time, because gets cost little
//	kube-apiserver refused an attempt,     all pass through, because waiting would bring nothing
//	or the list cannot be cached
//	an attempt broke off, or timed out     MostThrough pass through at a time; the others wait for
//	                                       their turn or for the next attempt
//	no progress for stalledAfter,          429, with a Retry-After that differs between clients
//	or no end within FillWait
//
// The reflector calls InLine, Progress, End and Fail. The other methods may be called from any
// goroutine.
type filling struct {
	syncedc  chan struct{} // closed when the cache is first filled; by the reflector
	failedc  chan struct{} // closed when a first attempt to fill it has failed; by the reflector
	refusedc chan struct{} // closed when requests should pass through and not wait; by the reflector
	listed   time.Time     // when the list was requested that first filled the cache; set before syncedc is closed

	through semaphore.Semaphore // acquired for each request that passes through after a failed attempt

	began   time.Time
	heard   atomic.Int64 // when the list last brought something, in nanoseconds after began
	inLine  atomic.Bool  // the lane waits for other lanes to be listed
	passed  atomic.Int32 // requests passed through during the first attempt
	waiting atomic.Int32 // requests that wait
}

const (
	// MostThrough is how many requests pass through because a lane is being filled: enough to serve
	// somebody while a list hangs, and too few to slow the list down much.
	MostThrough = 4
	// FillWait is how long a request waits for a lane at most. Clients and load balancers commonly
	// wait for an answer for a minute.
	FillWait = 30 * time.Second
	// stalledAfter is for how long a list may bring nothing while requests wait for it. It is more
	// than Wait, after which the first requests pass through.
	stalledAfter = 15 * time.Second
	// watchThrough is for how long a watch that passes through counts. Its initial events cost the
	// most, and most of them have come by then.
	watchThrough = 2 * time.Second
	// fillTick is how often a request that waits checks whether its client has left, and whether
	// there is progress.
	fillTick = 500 * time.Millisecond
)

// Wait is how long a request waits for its review, and for kube-apiserver's answers about its
// resource, before it passes through. After that it waits as long again for a lane that is being
// filled before it may pass through; see filling.
const Wait = 10 * time.Second

func newFilling() *filling {
	return &filling{
		syncedc:  make(chan struct{}),
		failedc:  make(chan struct{}),
		refusedc: make(chan struct{}),
		through:  semaphore.New(MostThrough),
		began:    time.Now(),
	}
}

// InLine notes whether the lane waits for other lanes to be listed.
func (f *filling) InLine(waits bool) { f.inLine.Store(waits) }

// Progress notes that the list that is under way has brought something.
func (f *filling) Progress() { f.heard.Store(int64(time.Since(f.began))) }

// End notes that the cache has been filled by a list that was requested at the given time; zero if
// it proves nothing about freshness.
func (f *filling) End(listed time.Time) {
	f.listed = listed
	close(f.syncedc)
}

// Fail notes that an attempt to fill the cache has failed, unless the cache is filled. troubled
// says that the next attempt may succeed soon. Otherwise requests pass through.
func (f *filling) Fail(troubled bool) {
	if f.synced() {
		return
	}
	if !troubled {
		closeOnce(f.refusedc)
	}
	closeOnce(f.failedc)
}

// closeOnce closes a channel unless it is closed. Only one goroutine may close it.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// stalled reports whether the list has brought nothing for stalledAfter, all of which a request
// that arrived at the given time has waited. A lane that waits for others to be listed is not
// stalled, because each of those has a bounded time.
func (f *filling) stalled(arrived time.Time) bool {
	heard := f.began.Add(time.Duration(f.heard.Load()))
	if heard.Before(arrived) {
		heard = arrived
	}
	return !f.inLine.Load() && time.Since(heard) >= stalledAfter
}

// synced reports whether the cache has been filled.
func (f *filling) synced() bool {
	select {
	case <-f.syncedc:
		return true
	default:
		return false
	}
}

// ready waits until the cache has been filled, a first attempt has failed, or ctx ends. It reports
// whether the cache has been filled.
func (f *filling) ready(ctx context.Context) bool {
	if f.synced() {
		return true
	}
	request.Waits(ctx)
	select {
	case <-f.syncedc:
		return true
	case <-f.failedc:
		return f.synced()
	case <-ctx.Done():
		return false
	}
}

// filled is the end of a request's wait for its lane.
type filled int

const (
	FillReady  filled = iota // the lane can serve it
	fillPassed               // it passes through
	FillFailed               // it is refused
	FillLeft                 // its client has left
)

// Waiter is a request that waits for a lane to be filled.
type Waiter struct {
	Verb     string
	Arrived  time.Time
	Patience time.Duration // how long it waits at most
	Left     func() bool   // reports whether its client has left
}

// Await waits until the lane can serve w, or w must pass through or be refused. If w passes
// through, the caller closes slot when w has been answered; slot may be nil.
func (l *Lane) Await(ctx context.Context, w Waiter) (end filled, slot *throughSlot) {
	if l.Synced() {
		return FillReady, nil
	}
	f := l.filling
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	request.Waits(ctx)
	if end, slot = f.wait(ctx, w); end == fillPassed && !l.Synced() {
		l.metrics.fillingPassed.Inc()
		return end, slot
	}
	slot.Close()
	if l.Synced() {
		return FillReady, nil
	}
	return end, nil
}

func (f *filling) wait(ctx context.Context, w Waiter) (filled, *throughSlot) {
	late, over := time.NewTimer(min(Wait, w.Patience/2)), time.NewTimer(w.Patience)
	defer late.Stop()
	defer over.Stop()
	tick := time.NewTicker(fillTick)
	defer tick.Stop()
	failedc, through := f.failedc, semaphore.Semaphore(nil) // nil is never ready
	for {
		select {
		case <-f.syncedc:
			return FillReady, nil
		case <-f.refusedc:
			return fillPassed, nil
		case <-failedc:
			failedc, through = nil, f.through
		case through <- struct{}{}:
			return fillPassed, &throughSlot{through: through, watch: w.Verb == "watch"}
		case <-late.C:
			if w.Verb == "get" {
				through = f.through
			} else if through == nil && f.passed.Add(1) <= MostThrough {
				return fillPassed, nil
			}
		case <-tick.C:
			if w.Left() {
				return FillLeft, nil
			}
			if f.stalled(w.Arrived) {
				return FillFailed, nil
			}
		case <-over.C:
			return FillFailed, nil
		case <-ctx.Done():
			return fillPassed, nil
		}
	}
}

// throughSlot is the place of a request in filling.through or historyBackfill.skipped. It is closed
// when the response has been written, or runs without the handler; see [exchange.Exchange.Until].
type throughSlot struct {
	through semaphore.Semaphore
	watch   bool
	once    sync.Once
}

// Close gives the place up. It may be called more than once, and on nil.
func (s *throughSlot) Close() error {
	if s == nil {
		return nil
	}
	s.once.Do(func() {
		if s.watch {
			time.AfterFunc(watchThrough, s.through.Release)
			return
		}
		s.through.Release()
	})
	return nil
}

var (
	fillingWaiting = exposition.Describe("gauge", "watchfan_lane_waiting_requests",
		"Requests that wait for the first list of the collection.")
	fillingPassed = exposition.Describe("counter", "watchfan_lane_filling_passed_total",
		"Requests passed through because the collection has not been listed yet or could not be listed.")
)

// addFilling adds the metrics of a lane's filling.
func (m *laneMetrics) addFilling(f *filling) {
	m.set.NewGauge(m.name(fillingWaiting), func() float64 { return float64(f.waiting.Load()) })
	m.fillingPassed = m.set.NewCounter(m.name(fillingPassed))
}
