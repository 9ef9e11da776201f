package consumers

import (
	"runtime"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/machine"
	"github.com/watchfan/watchfan/proxy/gate/request"
)

// way is how a request was answered, as far as that decides its cost.
type way uint8

const (
	gets way = iota
	lists
	watches // the beginning of one
	others
	passed
	ways // their number
)

func wayOf(req *request.Request, byUpstream bool) way {
	if byUpstream {
		return passed
	}
	switch req.MetricVerb() {
	case "get":
		return gets
	case "list":
		return lists
	case "watch":
		return watches
	}
	return others
}

// estimate is the average processor time of a consumer's handlers, in nanoseconds, of about the last
// mostSamples that were timed.
type estimate struct {
	average float64
	samples float64
}

const mostSamples = 64

func (e *estimate) add(sample float64) {
	e.samples = min(e.samples+1, mostSamples)
	e.average += (sample - e.average) / e.samples
}

// The model's costs of what is done outside of handlers, in nanoseconds: reading a request and writing an
// answer, and what passing one on takes elsewhere. `bench guard` compares them with what the process
// used.
var (
	handlerCost = [ways]float64{gets: 15_000, lists: 200_000, watches: 60_000, others: 15_000, passed: 45_000}
	wireCost    = [ways]float64{gets: 60_000, lists: 80_000, watches: 80_000, others: 60_000, passed: 190_000}
)

// connectionCost is that of a new connection, and handshakeCost of TLS on it.
const connectionCost, handshakeCost = 120_000, 900_000

func connectionWork(secure bool) float64 {
	if secure {
		return connectionCost + handshakeCost
	}
	return connectionCost
}

const (
	byteCost       = 0.6 // of a byte that a cache sends, over TLS
	passedByteCost = 1.2
	eventCost      = 14_000 // of an event to a watch with a connection of its own
	streamCost     = 1_500  // the same to one that shares a connection
	followCost     = 30_000 // of an event from kube-apiserver
	idleCost       = 2e6    // of a second
)

// What kube-apiserver takes, in seconds: for a request, for a byte of an object, and for an event to a watch
// (bench/README.md).
const (
	aloneRequest = 250e-6
	aloneByte    = 14.6e-9
	aloneEvent   = 17.9e-6
)

const (
	// sampleOne is how many handlers there are for one that is timed, if they come faster than sampleEvery.
	sampleOne   = 64
	sampleEvery = 20 * time.Millisecond
	// mostTimed bounds those that are timed at a time: each keeps a thread, also while it waits.
	mostTimed = 16
)

// Handler is a handler's timing. Only a few handlers are timed.
type Handler struct {
	timed bool
	began time.Duration // by the thread's clock
}

// Begin begins a handler, on its goroutine. The caller ends it there.
func (r *Register) Begin() (h Handler) {
	now, last := int64(fanout.MonotonicNow()), r.sampled.Load()
	if r.handlers.Add(1)%sampleOne != 0 && (now-last < int64(sampleEvery) || !r.sampled.CompareAndSwap(last, now)) {
		return h
	}
	if r.timed.Add(1) > mostTimed {
		r.timed.Add(-1)
		return h
	}
	runtime.LockOSThread()
	h.timed, h.began = true, machine.ThreadTime()
	return h
}

// end returns the processor time of a handler in nanoseconds; 0 if it was not timed.
func (r *Register) end(h Handler) float64 {
	if !h.timed {
		return 0
	}
	r.timed.Add(-1)
	took := machine.ThreadTime() - h.began
	runtime.UnlockOSThread()
	return float64(max(took, 0))
}

// requestWork is the model's cost of a request whose body has n bytes. sample is its handler's time.
func (c *Consumer) requestWorkLocked(by way, sample float64, n uint64) float64 {
	if sample > 0 {
		c.handler[by].add(sample)
	}
	took := handlerCost[by]
	if c.handler[by].samples > 0 {
		took = c.handler[by].average
	}
	each := byteCost
	if by == passed {
		each = passedByteCost
	}
	return took + wireCost[by] + each*float64(n)
}

// deliveryWork is the model's cost of what watches were sent.
func deliveryWork(d Delivered, streams bool) float64 {
	each := float64(eventCost)
	if streams {
		each = streamCost
	}
	return each*float64(d.Events) + byteCost*float64(d.Bytes)
}
