package fanout

import (
	"iter"
	"slices"
	"sort"
	"time"
)

// history is the recent changes of a collection in resourceVersion order. Clients resume from it.
// It grows while the cache's oldest change is younger than window, as in kube-apiserver
// (k8s.io/apiserver/pkg/storage/cacher/watch_cache_history.go), within bounds of changes and bytes.
// The cache's mutex guards it.
type history struct {
	maxEvents int
	maxBytes  int64

	// changes have consecutive numbers, the last one next-1. Those with numbers before live are
	// from before the cache's own, replayed for a client that needed them. They are dropped as soon
	// as one of the cache's own is forgotten.
	changes    []*change
	live, next uint64
	room       int   // for the cache's own changes, until it grows
	bytes      int64 // of changes

	// after is the resourceVersion after which nothing is missing.
	after uint64

	// gaps are the relist gaps that end after the resourceVersion after.
	gaps []relistGap

	indexes []*historyIndex
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
	for h.live < h.next && h.at(h.live).ResourceVersion <= after {
		h.forget()
	}
	h.beginAfter(after)
}

const (
	// window is how long kube-apiserver keeps events under load by default.
	window     = 75 * time.Second
	minHistory = 128
	// firstNumber leaves room for the numbers of replayed changes.
	firstNumber = 1 << 48
)

func newHistory(limits Limits) history {
	return history{
		maxEvents: limits.HistoryEvents, maxBytes: limits.HistoryBytes, live: firstNumber, next: firstNumber,
	}
}

func (h *history) append(e *change) {
	h.room = max(h.room, 1, min(minHistory, h.maxEvents))
	if int(h.next-h.live) == h.room {
		if h.room < h.maxEvents && e.Received-h.at(h.live).Received < MonotonicTime(window) {
			h.room = min(2*h.room, h.maxEvents)
		} else {
			h.forget()
		}
	}
	h.changes = append(h.changes, e)
	for _, x := range h.indexes {
		x.add(h.next, e)
	}
	h.next++
	h.bytes += e.size()
	for h.bytes > h.maxBytes && h.next-h.live > 1 {
		h.forget()
	}
}

// forget drops the oldest of the cache's own changes.
func (h *history) forget() {
	oldest := h.at(h.live)
	for _, x := range h.indexes {
		x.forget(h.live, oldest)
	}
	h.live++
	h.beginAfter(oldest.ResourceVersion)
}

// beginAfter drops the changes with numbers before live. Nothing is missing after resourceVersion
// after.
func (h *history) beginAfter(after uint64) {
	h.after = after
	gone := h.replayed()
	for _, e := range gone {
		h.bytes -= e.size()
		e.forget()
	}
	h.changes = h.changes[len(gone):]
	clear(gone)
	h.gaps = slices.DeleteFunc(h.gaps, func(g relistGap) bool { return g.to <= h.after })
}

// unresolvedFor reports whether what f's clients may get after resourceVersion rv depends on
// unknown versions.
func (h *history) unresolvedFor(f *Filter, rv uint64) bool {
	return !f.fixed && slices.ContainsFunc(h.replayed(), func(e *change) bool {
		return e.ResourceVersion > rv && e.unresolved() && f.inScope(e.Object)
	})
}

// reset drops everything. Nothing is missing after resourceVersion rv.
func (h *history) reset(rv uint64) {
	*h = history{maxEvents: h.maxEvents, maxBytes: h.maxBytes, live: h.next, next: h.next, after: rv}
}

func (h *history) first() uint64 { return h.next - uint64(len(h.changes)) }

// replayed returns the changes from before the cache's own.
func (h *history) replayed() []*change { return h.changes[:h.live-h.first()] }

func (h *history) at(n uint64) *change { return h.changes[n-h.first()] }

// between returns the changes with the numbers from begin to end, without end.
func (h *history) between(begin, end uint64) []*change {
	return slices.Clone(h.changes[begin-h.first() : end-h.first()])
}

// seek returns the number of the first change with a resourceVersion greater than rv.
func (h *history) seek(rv uint64) uint64 {
	i := sort.Search(len(h.changes), func(i int) bool { return h.changes[i].ResourceVersion > rv })
	return h.first() + uint64(i)
}

// changesAfter yields the changes after resourceVersion rv, in order. Those that have been forgotten are
// missing.
func (h *history) changesAfter(rv uint64) iter.Seq[*change] {
	return slices.Values(h.changes[h.seek(rv)-h.first():])
}

// numbered is a change and its number.
type numbered struct {
	*change
	number uint64
}

// read appends to dst the changes from the number n on and before the number end that s finds, at most
// max of them. ok is false if some of the changes have been forgotten.
func (h *history) read(s historySearch, dst []numbered, n, end uint64, max int) (changes []numbered, ok bool) {
	if n < h.first() {
		return dst, false
	}
	end = min(end, h.next)
	for n = s.next(h, n, end); n < end && len(dst) < max; n = s.next(h, n+1, end) {
		dst = append(dst, numbered{h.at(n), n})
	}
	return dst, true
}
