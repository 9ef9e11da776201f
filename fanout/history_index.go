package fanout

import (
	"slices"
	"strings"
)

// historyIndex finds the changes of the history that may concern a filter, by the value of an
// attribute in the version before or the one after. It is kept beside each secondaryIndex, and
// begins with the changes after that was built. Changes from before the history, which a replay has
// brought, are added in steps. The cache's mutex guards it.
type historyIndex struct {
	attribute attribute
	from      uint64 // changes of the ring with smaller numbers are not in it
	byValue   map[string]*numbers
	entries   int
	use       *indexUse // the secondaryIndex's

	// The first covered changes of history.replayed, by value: their places there. They are valid
	// for the revision of history.replayed that they were made from.
	replayed map[string]*numbers
	covered  int
	revision uint64
}

// numbers are the numbers of changes, ascending.
type numbers struct{ list []uint64 }

// The memory of a change, and of a value, in a historyIndex: the list grows by doubling.
const (
	numberBytes = 16
	valueBytes  = 96
)

func newHistoryIndex(x *secondaryIndex, from uint64) *historyIndex {
	return &historyIndex{attribute: x.attribute, from: from, byValue: make(map[string]*numbers), use: x.use}
}

func (x *historyIndex) bytes() int64 {
	return int64(x.entries+x.covered)*numberBytes + int64(len(x.byValue)+len(x.replayed))*valueBytes
}

// values calls f with the values of the attribute before and after the change, each once.
func (x *historyIndex) values(e *change, f func(value string)) {
	value, has := x.attribute.of(e.Object)
	if has {
		f(value)
	}
	if e.Prev != nil {
		if old, had := x.attribute.of(e.Prev); had && (!has || old != value) {
			f(old)
		}
	}
}

// add adds the latest change, with number n.
func (x *historyIndex) add(n uint64, e *change) {
	x.values(e, func(value string) {
		appendTo(x.byValue, value, n)
		x.entries++
	})
}

// appendTo appends a number to the list of a value, which may be a part of an object that the history
// forgets.
func appendTo(byValue map[string]*numbers, value string, n uint64) {
	l := byValue[value]
	if l == nil {
		l = &numbers{}
		byValue[strings.Clone(value)] = l
	}
	l.list = append(l.list, n)
}

// forget removes the oldest change, with number n.
func (x *historyIndex) forget(n uint64, e *change) {
	if n < x.from {
		return
	}
	x.values(e, func(value string) {
		l := x.byValue[value]
		l.list = l.list[1:]
		x.entries--
		if len(l.list) == 0 {
			delete(x.byValue, value)
		}
	})
}

// addReplayed adds the next changes of h.replayed, at most most. It reports whether there are more.
func (x *historyIndex) addReplayed(h *history, most int) (more bool) {
	if x.revision != h.revision {
		x.replayed, x.covered, x.revision = make(map[string]*numbers), 0, h.revision
	}
	end := min(x.covered+most, len(h.replayed))
	for ; x.covered < end; x.covered++ {
		x.values(h.replayed[x.covered], func(value string) { appendTo(x.replayed, value, uint64(x.covered)) })
	}
	return end < len(h.replayed)
}

// indexReplayed adds replayed changes to the indexes, at most most. It reports whether there are
// more.
func (h *history) indexReplayed(most int) (more bool) {
	for _, x := range h.indexes {
		if x.addReplayed(h, most) {
			return true
		}
	}
	return false
}

// changeReplayed replaces the replayed changes.
func (h *history) changeReplayed(replayed []*change) {
	h.replayed = replayed
	h.revision++
	for _, x := range h.indexes {
		x.replayed, x.covered = nil, 0
	}
}

// count returns the number of changes that have one of the values.
func (x *historyIndex) count(values []string) (n int) {
	for _, v := range values {
		if l := x.byValue[v]; l != nil {
			n += len(l.list)
		}
	}
	return n
}

// firstOf returns the first number of at least n in the lists of the values; end if there is none
// before.
func firstOf(byValue map[string]*numbers, values []string, n, end uint64) uint64 {
	for _, v := range values {
		if l := byValue[v]; l != nil {
			if i, _ := slices.BinarySearch(l.list, n); i < len(l.list) {
				end = min(end, l.list[i])
			}
		}
	}
	return end
}

// historySearch is how the changes that may concern a filter are found. Its zero value looks at all
// changes.
type historySearch struct {
	index  *historyIndex
	values []string
}

// search returns the search for changes that may concern f, by the index with the fewest.
func (h *history) search(f *Filter) (s historySearch) {
	if len(h.indexes) == 0 {
		return s
	}
	least := 0
	for _, p := range f.places() {
		for _, x := range h.indexes {
			if x.attribute != p.attribute {
				continue
			}
			if n := x.count(p.values); s.index == nil || n < least {
				s, least = historySearch{x, p.values}, n
			}
		}
	}
	if s.index != nil {
		s.index.use.note()
	}
	return s
}

// next returns the number of the first change with a number of at least n, and before end, that may
// concern the filter; end if there is none.
func (s historySearch) next(n, end uint64) uint64 {
	if s.index == nil || n < s.index.from || n >= end {
		return min(n, end)
	}
	return firstOf(s.index.byValue, s.values, n, end)
}

// nextReplayed is next for places in h.replayed.
func (s historySearch) nextReplayed(h *history, i int) int {
	end := len(h.replayed)
	if s.index == nil || i >= end || s.index.revision != h.revision || s.index.covered < end {
		return min(i, end)
	}
	return int(firstOf(s.index.replayed, s.values, uint64(i), uint64(end)))
}
