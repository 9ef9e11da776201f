package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/exposition"
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
// Its methods may be called from any goroutine.
type filling struct {
	// refusedc is closed when requests are rather passed through than kept waiting; by the
	// reflector.
	refusedc chan struct{}
	// through holds one for each request that is passed through after a failed attempt; never
	// closed.
	through chan struct{}

	heard   atomic.Int64 // when the list last brought something, or the lane began; a fanout.Instant
	inLine  atomic.Bool  // it waits for other lanes to be listed
	passed  atomic.Int32 // requests passed through during the first attempt
	waiting atomic.Int32 // requests that wait
}

const (
	// mostThrough is how many requests pass through for want of a lane that is being filled: enough
	// to serve somebody while a list hangs, and too few to slow it down much.
	mostThrough = 4
	// fillWait is how long a request waits for a lane at most: less than clients and load balancers
	// commonly wait for an answer, which is a minute.
	fillWait = 30 * time.Second
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

func newFilling() *filling {
	f := &filling{refusedc: make(chan struct{}), through: make(chan struct{}, mostThrough)}
	f.progress()
	return f
}

// progress notes that the list that is under way has brought something.
func (f *filling) progress() { f.heard.Store(int64(fanout.Now())) }

// stalled reports whether the list has brought nothing for too long, and for as long as a request
// that arrived then has waited. A lane that waits for others to be listed is not stalled: each of
// those has a bounded time.
func (f *filling) stalled(arrived time.Time) bool {
	heard := fanout.Instant(f.heard.Load()).Time()
	if heard.Before(arrived) {
		heard = arrived
	}
	return !f.inLine.Load() && time.Since(heard) >= stalledAfter
}

// refuse has requests passed through. It is called by the reflector.
func (f *filling) refuse() {
	select {
	case <-f.refusedc:
	default:
		close(f.refusedc)
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
	fillReady  filled = iota // the lane can serve it
	fillPassed               // it is to be passed through
	fillFailed               // it is to be refused
	fillLeft                 // its client has left
)

// await waits until the lane can serve r, or r is to be passed through or refused. slot is to be
// closed when what is passed through has been answered; nil is nothing to close. left reports
// whether the client has left.
func (l *lane) await(ctx context.Context, r *cachedRead, left func() bool) (end filled, slot *throughSlot) {
	if l.synced() {
		return fillReady, nil
	}
	f := l.filling
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	waits(ctx)
	if end, slot = l.wait(ctx, r, left); end == fillPassed && !l.synced() {
		l.metrics.fillingPassed.Inc()
		return end, slot
	}
	slot.Close()
	if l.synced() {
		return fillReady, nil
	}
	return end, nil
}

func (l *lane) wait(ctx context.Context, r *cachedRead, left func() bool) (filled, *throughSlot) {
	f := l.filling
	patience := r.patience()
	late, over := time.NewTimer(min(laneWait, patience/2)), time.NewTimer(patience)
	defer late.Stop()
	defer over.Stop()
	tick := time.NewTicker(fillTick)
	defer tick.Stop()
	failedc, through := l.failedc, chan<- struct{}(nil)
	for {
		select {
		case <-l.syncedc:
			return fillReady, nil
		case <-f.refusedc:
			return fillPassed, nil
		case <-failedc:
			failedc, through = nil, f.through
		case through <- struct{}{}:
			return fillPassed, &throughSlot{of: f, watch: r.verb == "watch"}
		case <-late.C:
			if r.verb == "get" {
				through = f.through
			} else if through == nil && f.passed.Add(1) <= mostThrough {
				return fillPassed, nil
			}
		case <-tick.C:
			if left() {
				return fillLeft, nil
			}
			if f.stalled(r.arrived) {
				return fillFailed, nil
			}
		case <-over.C:
			return fillFailed, nil
		case <-ctx.Done():
			return fillPassed, nil
		}
	}
}

// patience is how long r waits for a lane: the client's own timeout less what it takes to answer,
// at most fillWait.
func (req *request) patience() time.Duration {
	own := req.timeout
	if req.verb == "watch" && req.timeoutSeconds != nil {
		own = time.Duration(min(*req.timeoutSeconds, int64(fillWait/time.Second)*2)) * time.Second
	}
	if own <= 0 {
		return fillWait
	}
	return min(fillWait, own/10*9)
}

// throughSlot is the place of a request in filling.through. fasthttp closes it when the request's
// response has been written, or its connection been taken over.
type throughSlot struct {
	of    *filling
	watch bool
	once  sync.Once
}

type throughKey struct{}

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

// awaitLane has r wait for its lane, and reports whether that can serve it. refused is what the
// client is told that has waited for too long.
func (c *cachedReads) awaitLane(ctx *fasthttp.RequestCtx, r *cachedRead) (ready bool, refused *metav1.Status) {
	end, slot := r.lane.await(withArrival(c.ctx, r.arrival), r, func() bool { return hasLeft(tcpConn(accepted(ctx.Conn()))) })
	if slot != nil {
		ctx.SetUserValue(throughKey{}, slot)
	}
	switch end {
	case fillFailed:
		return false, c.unfilled(r)
	case fillLeft:
		return false, failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the client left before its request could be answered")
	}
	return end == fillReady, nil
}

func (c *cachedReads) unfilled(r *cachedRead) *metav1.Status {
	return c.refuse(rejectedFilling, "this proxy has just begun to read "+resourceText(r.gvr)+" from kube-apiserver, which takes long")
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
