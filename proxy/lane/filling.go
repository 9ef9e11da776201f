package lane

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/exposition"
	"github.com/watchfan/watchfan/proxy/request"
)

// filling is how far a lane is with being filled for the first time, and how many requests have
// been passed through meanwhile. A resource that takes long to list is one that kube-apiserver must
// not list for each client as well.
//
//	while the first attempt is under way     a request waits; of those that have waited for laneWait mostThrough lists and watches
//	                                         pass through in all, and gets, which cost little, mostThrough at a time
//	after one that kube-apiserver refused,   all pass through: waiting would bring nothing
//	or that can't be cached
//	after one that broke off, or came        mostThrough pass through at a time, the others wait for their turn or for the next attempt
//	to nothing for want of an answer
//	no progress for stalledAfter, or         429, with a Retry-After that is another for each client
//	no end within fillWait
//
// The reflector calls progress, end and fail; the other methods may be called from any goroutine.
type filling struct {
	// syncedc is closed when the cache is first filled, failedc when a first attempt to fill it has
	// failed; by the reflector.
	syncedc, failedc chan struct{}
	// listed is when the list was requested that first filled the cache; set before syncedc is
	// closed.
	listed time.Time
	// refusedc is closed when requests are rather passed through than kept waiting; by the
	// reflector.
	refusedc chan struct{}
	// through holds one for each request that is passed through after a failed attempt; never
	// closed.
	through chan struct{}

	heard   moment       // when the list last brought something, or the lane began
	inLine  atomic.Bool  // it waits for other lanes to be listed
	passed  atomic.Int32 // requests passed through during the first attempt
	waiting atomic.Int32 // requests that wait
}

const (
	// MostThrough is how many requests pass through for want of a lane that is being filled: enough
	// to serve somebody while a list hangs, and too few to slow it down much.
	MostThrough = 4
	// FillWait is how long a request waits for a lane at most: less than clients and load balancers
	// commonly wait for an answer, which is a minute.
	FillWait = 30 * time.Second
	// stalledAfter is for how long a list may bring nothing while requests wait for it. It is more
	// than laneWait, after which the first pass through.
	stalledAfter = 15 * time.Second
	// watchThrough is for how long a watch that passes through counts: its initial events are the
	// work, and most have come by then.
	watchThrough = 2 * time.Second
	// fillTick is how often a request that waits looks whether its client has left, and whether
	// there is progress.
	fillTick = 500 * time.Millisecond
)

// Wait is how long a request waits for its review, and for what kube-apiserver says about its
// resource, before it is passed through. Then it waits as long again for a lane that is being
// filled before it may be passed through; see filling.
const Wait = 10 * time.Second

func newFilling() *filling {
	f := &filling{
		syncedc:  make(chan struct{}),
		failedc:  make(chan struct{}),
		refusedc: make(chan struct{}),
		through:  make(chan struct{}, MostThrough),
	}
	f.progress()
	return f
}

// progress notes that the list that is under way has brought something.
func (f *filling) progress() { f.heard.set(fanout.MonotonicNow()) }

// stalled reports whether the list has brought nothing for too long, and for as long as a request
// that arrived then has waited. A lane that waits for others to be listed is not stalled: each of
// those has a bounded time.
func (f *filling) stalled(arrived time.Time) bool {
	heard := f.heard.time()
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

// Ready waits until the lane can serve reads and reports whether it can. It can't if a first
// attempt to list upstream has failed, or takes longer than ctx lasts.
func (f *filling) Ready(ctx context.Context) bool {
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

// After reports whether all that the cache holds is newer than t. The cache has been filled.
func (f *filling) After(t time.Time) bool { return f.listed.After(t) }

// end notes that the cache has been filled by a list that was requested then.
func (f *filling) end(listed time.Time) {
	f.listed = listed
	close(f.syncedc)
}

// fail notes that an attempt to fill the cache has failed, unless the cache is filled, and whether
// the next one may succeed soon. If not, requests are passed through.
func (f *filling) fail(troubled bool) {
	if f.synced() {
		return
	}
	if !troubled {
		closeOnce(f.refusedc)
	}
	closeOnce(f.failedc)
}

// closeOnce closes a channel that only its caller closes, unless it is closed.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// troubled reports whether err is of an upstream that is away, slow or busy, rather than of one
// that does not let us list, or lists what can't be cached.
func troubled(err error) bool {
	var status *statusError
	if errors.As(err, &status) {
		return status.Code >= http.StatusInternalServerError || status.Code == http.StatusTooManyRequests
	}
	var network net.Error
	return hangs(err) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// filled is what became of a request's wait for its lane.
type filled int

const (
	FillReady  filled = iota // the lane can serve it
	fillPassed               // it is to be passed through
	FillFailed               // it is to be refused
	FillLeft                 // its client has left
)

// Waiter is a request that waits for a lane to be filled.
type Waiter struct {
	Verb     string
	Arrived  time.Time
	Patience time.Duration // how long it waits at most
	Left     func() bool   // reports whether its client has left
}

// Await waits until the lane can serve w, or w is to be passed through or refused. slot is to be
// closed when what is passed through has been answered; nil is nothing to close.
func (l *Lane) Await(ctx context.Context, w Waiter) (end filled, slot *throughSlot) {
	if l.Synced() {
		return FillReady, nil
	}
	f := l.Filling
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	request.Waits(ctx)
	if end, slot = f.wait(ctx, w); end == fillPassed && !l.Synced() {
		l.Metrics.fillingPassed.Inc()
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
	failedc, through := f.failedc, chan<- struct{}(nil)
	for {
		select {
		case <-f.syncedc:
			return FillReady, nil
		case <-f.refusedc:
			return fillPassed, nil
		case <-failedc:
			failedc, through = nil, f.through
		case through <- struct{}{}:
			return fillPassed, &throughSlot{of: f, watch: w.Verb == "watch"}
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

// throughSlot is the place of a request in filling.through. fasthttp closes it when the request's
// response has been written, or its connection been taken over.
type throughSlot struct {
	of    *filling
	watch bool
	once  sync.Once
}

// Close gives the place up. It may be called more than once, and on nil.
func (s *throughSlot) Close() error {
	if s == nil {
		return nil
	}
	s.once.Do(func() {
		if s.watch {
			time.AfterFunc(watchThrough, func() { <-s.of.through })
			return
		}
		<-s.of.through
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
