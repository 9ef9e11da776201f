package reflector

import (
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// health says how the upstream watch is doing. The goroutine of Run writes it, and the watchdog
// clears bookmarked. Any goroutine may read it. The zero value is a resource that has not been
// watched yet.
type health struct {
	watchBegan  moment // when the current or last watch began
	brokenSince moment // since when a filled cache has no watch; no time while it has one
	lastHeard   moment // when the watch last brought anything, or began
	lastChange  moment // when the watch last brought a change

	bookmarked atomic.Bool           // upstream sends bookmarks, as far as its watches have shown
	lastBreak  atomic.Pointer[Break] // nil for never
}

// Break says why an upstream watch, or an attempt at one, broke.
type Break struct {
	Kind   string // see errorKind
	At     time.Time
	Relist bool // the collection must be listed again
}

// began notes that a watch began.
func (h *health) began() {
	now := time.Now()
	h.watchBegan.set(now)
	h.brokenSince.clear()
	h.lastHeard.set(now)
}

// unwatched notes that the cache has been filled by a list, and that no watch follows it yet.
func (h *health) unwatched() {
	if h.brokenSince.time().IsZero() {
		h.brokenSince.set(time.Now())
	}
}

// broke notes why the watch, or an attempt at one, broke, and whether the collection must be listed
// again.
func (h *health) broke(err error, relist bool) {
	h.lastBreak.Store(&Break{Kind: errorKind(err), At: time.Now(), Relist: relist})
}

// Status says how a reflector is doing. The time of an event that has not happened is zero.
// Counters count from the beginning of the reflector.
type Status struct {
	WatchBegan  time.Time // when the current or last upstream watch began
	BrokenSince time.Time // since when a filled cache has no watch; zero while it has one
	LastHeard   time.Time // when the watch last brought anything, or began
	LastChange  time.Time // when the watch last brought a change
	LastBreak   *Break    // nil for never
	Filled      *Filled   // how the cache was first filled; nil before that, and in Tables

	Changes uint64 // that upstream has sent
	Breaks  uint64
	Relists uint64
	Resets  uint64
}

// Status returns how the reflector is doing. It may be called from any goroutine.
func (r *Reflector) Status() Status {
	h, m := &r.health, &r.metrics
	return Status{
		WatchBegan:  h.watchBegan.time(),
		BrokenSince: h.brokenSince.time(),
		LastHeard:   h.lastHeard.time(),
		LastChange:  h.lastChange.time(),
		LastBreak:   h.lastBreak.Load(),
		Filled:      r.first.Load(),
		Changes:     m.events.Get(),
		Breaks:      m.breaks.Get(),
		Relists:     m.relists.Get(),
		Resets:      m.resets.Get(),
	}
}

// moment is a point in time that any goroutine may set and read. The zero value is no time.
type moment struct{ at atomic.Int64 } // a [fanout.MonotonicTime]

// set makes the moment t, which comes from [time.Now].
func (m *moment) set(t time.Time) { m.at.Store(int64(fanout.MonotonicOf(t))) }

// clear makes the moment no time.
func (m *moment) clear() { m.at.Store(0) }

// time returns the moment, zero for no time.
func (m *moment) time() time.Time { return fanout.MonotonicTime(m.at.Load()).Time() }

// once sets the moment to now and reports true, unless it was set within the interval before. If
// several goroutines call it at the same time, it reports true to one of them.
func (m *moment) once(interval time.Duration) bool {
	now, last := int64(fanout.MonotonicOf(time.Now())), m.at.Load()
	if last != 0 && now-last < int64(interval) {
		return false
	}
	return m.at.CompareAndSwap(last, now)
}
