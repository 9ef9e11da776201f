package fanout

import (
	"iter"
	"slices"
	"sort"
	"time"
)

// history is the recent changes of a collection in resourceVersion order. Clients resume from it.
// It is a ring that grows while its oldest change is younger than window, as in kube-apiserver
// (k8s.io/apiserver/pkg/storage/cacher/watch_cache_history.go), within bounds of changes and bytes.
// The cache's mutex guards it.
type history struct {
	maxEvents int
	maxBytes  int64

	// ring holds the changes first, first+1, … next-1, each at its number modulo the ring's length.
	ring        []*change
	first, next uint64

	// replayed are changes from before the ring's first, fetched for a client that needed them.
	// They are dropped as soon as the ring itself forgets a change.
	replayed []*change
	bytes    int64 // of the ring and of replayed

	// lastUnresolved has the resourceVersion of the last of replayed that is unresolved, in each
	// namespace, and under "" of all.
	lastUnresolved map[string]uint64

	// after is the resourceVersion after which nothing is missing.
	after uint64

	// gaps are the relist gaps that end after the resourceVersion after.
	gaps []relistGap

	indexes []*historyIndex // of the ring's changes
}

// relistGap is what a relist skipped, both ends exclusive. Objects may have come and gone there
// that are in no event.
type relistGap struct{ from, to uint64 }

func (g relistGap) has(rv uint64) bool { return g.from < rv && rv < g.to }

// inGap reports whether a client that has seen the state as of rv may have seen changes that no
// event here undoes.
func (h *history) inGap(rv uint64) bool {
	return slices.ContainsFunc(h.gaps, func(g relistGap) bool { return g.has(rv) })
}

// mostGaps bounds the relist gaps. A collection that does not change fills no history, so nothing
// else would forget them.
const mostGaps = 1024

// addGap adds a relist gap, which is later than the others. If there are too many, the history
// begins behind the oldest of them.
func (h *history) addGap(g relistGap) {
	h.gaps = append(h.gaps, g)
	if len(h.gaps) <= mostGaps {
		return
	}
	after := h.gaps[0].to
	for h.first < h.next && h.at(h.first).ResourceVersion <= after {
		h.forget()
	}
	h.beginAfter(after)
}

const (
	// window is how long kube-apiserver keeps events under load by default.
	window     = 75 * time.Second
	minHistory = 128
)

func (h *history) append(e *change) {
	if h.ring == nil {
		h.ring = make([]*change, max(1, min(minHistory, h.maxEvents)))
	}
	if int(h.next-h.first) == len(h.ring) {
		oldest := h.ring[h.first%uint64(len(h.ring))]
		if len(h.ring) < h.maxEvents && e.Received-oldest.Received < MonotonicTime(window) {
			h.resize(min(len(h.ring)*2, h.maxEvents))
		} else {
			h.forget()
		}
	}
	h.ring[h.next%uint64(len(h.ring))] = e
	for _, x := range h.indexes {
		x.add(h.next, e)
	}
	h.next++
	h.bytes += e.size()
	for h.bytes > h.maxBytes && h.next-h.first > 1 {
		h.forget()
	}
}

func (h *history) resize(n int) {
	ring := make([]*change, n)
	for i := h.first; i < h.next; i++ {
		ring[i%uint64(n)] = h.ring[i%uint64(len(h.ring))]
	}
	h.ring = ring
}

// forget drops the oldest change.
func (h *history) forget() {
	slot := &h.ring[h.first%uint64(len(h.ring))]
	after := (*slot).ResourceVersion
	h.bytes -= (*slot).size()
	for _, x := range h.indexes {
		x.forget(h.first, *slot)
	}
	*slot = nil
	h.first++
	h.beginAfter(after)
}

// beginAfter drops what came before the ring. Nothing is missing after resourceVersion after.
func (h *history) beginAfter(after uint64) {
	h.after = after
	if h.replayed != nil {
		for _, e := range h.replayed {
			h.bytes -= e.size()
		}
		h.changeReplayed(nil)
	}
	h.lastUnresolved = nil
	h.gaps = slices.DeleteFunc(h.gaps, func(g relistGap) bool { return g.to <= h.after })
}

// unresolvedFor reports whether what f's clients may get after resourceVersion rv depends on
// unknown versions. It checks only the filter's namespace.
func (h *history) unresolvedFor(f *Filter, rv uint64) bool {
	return !f.fixed && h.lastUnresolved[f.namespace] > rv
}

// reset drops everything. Nothing is missing after resourceVersion rv.
func (h *history) reset(rv uint64) {
	*h = history{maxEvents: h.maxEvents, maxBytes: h.maxBytes, first: h.next, next: h.next, after: rv}
}

// at returns the change with number n, which is in [first, next).
func (h *history) at(n uint64) *change { return h.ring[n%uint64(len(h.ring))] }

// between returns the changes with the numbers from first to end, without end.
func (h *history) between(first, end uint64) []*change {
	changes := make([]*change, 0, end-first)
	for n := first; n < end; n++ {
		changes = append(changes, h.at(n))
	}
	return changes
}

// seek returns the number of the first change with a resourceVersion greater than rv.
func (h *history) seek(rv uint64) uint64 {
	return h.first + uint64(sort.Search(int(h.next-h.first), func(i int) bool {
		return h.at(h.first+uint64(i)).ResourceVersion > rv
	}))
}

// changesAfter yields the changes after resourceVersion rv and before the number end that s finds, in
// order. Those that have been forgotten are missing.
func (h *history) changesAfter(s historySearch, rv, end uint64) iter.Seq[*change] {
	return func(yield func(*change) bool) {
		places := len(h.replayed)
		first := sort.Search(places, func(i int) bool { return h.replayed[i].ResourceVersion > rv })
		for i := s.nextReplayed(first, places); i < places; i = s.nextReplayed(i+1, places) {
			if !yield(h.replayed[i]) {
				return
			}
		}
		end := min(end, h.next)
		for n := s.next(h.seek(rv), end); n < end; n = s.next(n+1, end) {
			if !yield(h.at(n)) {
				return
			}
		}
	}
}

// read appends to dst the changes after resourceVersion rv and before the number end that s finds, at
// most max of them. It never splits changes with the same resourceVersion. So the last one's
// resourceVersion says where to continue. ok is false if some of the changes have been forgotten.
func (h *history) read(s historySearch, dst []*change, rv, end uint64, max int) (events []*change, ok bool) {
	if rv < h.after {
		return dst, false
	}
	for e := range h.changesAfter(s, rv, end) {
		if n := len(dst); n >= max && dst[n-1].ResourceVersion != e.ResourceVersion {
			break
		}
		dst = append(dst, e)
	}
	return dst, true
}
