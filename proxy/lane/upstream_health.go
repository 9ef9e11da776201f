package lane

import (
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// upstreamHealth says how a lane's upstream watch is doing. The reflector writes it, and the
// watchdog clears bookmarked. Any goroutine may read it. The zero value is a lane that has not been
// watched yet.
type upstreamHealth struct {
	watchBegan  moment // when the current or last watch began
	brokenSince moment // when the last watch ended; no time while there is a watch
	lastHeard   moment // when the watch last brought anything, or began
	lastChange  moment // when a change last came

	bookmarked atomic.Bool               // upstream sends bookmarks, as far as its watches have shown
	lastError  atomic.Pointer[laneError] // why the watch, or an attempt at one, last broke
}

// began notes that a watch began.
func (h *upstreamHealth) began() {
	h.watchBegan.set(fanout.MonotonicNow())
	h.brokenSince.clear()
	h.lastHeard.set(fanout.MonotonicNow())
}

// heard notes that the watch brought something.
func (h *upstreamHealth) heard(received time.Time) { h.lastHeard.set(fanout.MonotonicOf(received)) }

// changed notes that the watch brought a change.
func (h *upstreamHealth) changed(received time.Time) { h.lastChange.set(fanout.MonotonicOf(received)) }

// ended notes that the watch ended.
func (h *upstreamHealth) ended() { h.brokenSince.set(fanout.MonotonicNow()) }

// failed notes why the watch, or an attempt at one, broke, and whether the collection must be
// listed again.
func (h *upstreamHealth) failed(err error, relist bool) {
	h.lastError.Store(&laneError{kind: ErrorKind(err), at: time.Now(), relist: relist})
}

// BrokenFor is how long there has been no watch.
func (h *upstreamHealth) BrokenFor() time.Duration {
	since := h.brokenSince.time()
	if since.IsZero() {
		return 0
	}
	return time.Since(since)
}
