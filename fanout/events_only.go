package fanout

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/watchfan/watchfan/framing"
)

var (
	// ErrEventsOnly: a cache that keeps no objects can't begin a subscription in this way. The
	// caller asks upstream.
	ErrEventsOnly = errors.New("cache keeps no objects")
	// ErrStale: a change that the subscription would be sent first arrived longer ago than
	// [Request.MaxAge]. The caller asks upstream.
	ErrStale = errors.New("changes have been kept for too long")
)

// NewEventsOnly returns an empty cache that keeps no objects: only the history, and the
// subscriptions. It is for a representation in which an old version is not what upstream would send
// now. The rows of a Table are such: kube-apiserver makes them when it sends them, with ages as of
// then. So the cache serves changes while they are new, in the bytes and with the types in which
// they came, and never a state.
//
//   - [Cache.Reset] without objects makes it begin at a resourceVersion. Replace is not called.
//   - A subscription begins [FromNow] or [FromVersion].
//   - Its filter is [Filter.Fixed]. What a client gets of a change then doesn't depend on the
//     version before, which is not known. Objects never enter or leave such a filter.
//   - Its first event has the column definitions; see [Cache.SetColumns].
func NewEventsOnly(limits Limits, flusher *Flusher) *Cache {
	c := NewCache(limits, flusher)
	c.eventsOnly = true
	return c
}

// Fixed reports whether the filter depends only on an object's namespace and name, which never
// change.
func (f *Filter) Fixed() bool { return f.fixed }

// SetColumns sets what the first event of each subscription has more than the others. The caller
// calls it before it applies the first event that has them, or extends the history by it. It reports
// false, and changes nothing, if there are other columns already. Their subscriptions must end
// first; see [Cache.ResetColumns]. It may be called from any goroutine.
func (c *Cache) SetColumns(columns framing.Columns) bool {
	return c.columns.CompareAndSwap(nil, &columns) || c.columns.Load().Equal(columns)
}

// ResetColumns is Reset to resourceVersion rv, for a resource whose columns have changed.
func (c *Cache) ResetColumns(columns framing.Columns, rv uint64, ending Ending) {
	c.Reset(nil, rv, ending)
	c.columns.Store(&columns) // before the writer applies an event
}

// passed returns an upstream event as a change whose version before is not known.
func passed(ev framing.Event, received time.Time) *change {
	return &change{
		Type: ev.Type, Object: ev.Object, PrevUnknown: ev.Type != framing.Added,
		ResourceVersion: ev.Object.ResourceVersion, Received: MonotonicOf(received),
	}
}

// repeats reports whether the latest changes, those with the object's resourceVersion, have the
// object already.
func (h *history) repeats(o *framing.Object) bool {
	for _, e := range slices.Backward(h.changes) {
		if e.Object.ResourceVersion != o.ResourceVersion {
			return false
		}
		if e.Object.Key == o.Key {
			return true
		}
	}
	return false
}

// tooOldLocked returns ErrStale for a subscription from a resourceVersion if what it would begin with
// is older than its MaxAge.
func (c *Cache) tooOldLocked(r Request) error {
	if r.MaxAge == 0 {
		return nil
	}
	since := MonotonicOf(time.Now().Add(-r.MaxAge))
	for e := range c.history.changesAfter(r.ResourceVersion) {
		if e.Received < since && r.Filter.Match(e.Object) {
			return fmt.Errorf("%w: from %d", ErrStale, r.ResourceVersion)
		}
	}
	return nil
}

// opened returns f as the subscription's next event: with the column definitions, if f is its first
// event and its cache has columns. own reports whether the bytes are for this client only.
func (s *Subscription) opened(f framing.Frame) (event framing.Frame, own bool) {
	if !s.unopened {
		return f, false
	}
	s.unopened = false
	if columns := s.group.cache.columns.Load(); columns != nil {
		return columns.Open(f), true
	}
	return f, false
}
