package fanout

import (
	"slices"
	"strings"
)

// historyIndex finds the cache's own changes in the history that may concern a filter, by the value of
// the version before or the one after. It is kept beside each secondaryIndex, and begins with the changes
// after that was built. The cache's mutex guards it.
type historyIndex struct {
	indexed
	from    uint64              // the cache's own changes with smaller numbers are not in it
	own     map[string]*numbers // by value
	entries int                 // of own
}

// numbers are those of changes, ascending.
type numbers struct{ list []uint64 }

// The memory of a change, and of a value, in a historyIndex: the list grows by doubling.
const (
	numberBytes = 16
	valueBytes  = 96
)

func newHistoryIndex(x *secondaryIndex, from uint64) *historyIndex {
	return &historyIndex{indexed: x.indexed, from: from, own: make(map[string]*numbers)}
}

func (x *historyIndex) bytes() int64 {
	return int64(x.entries)*numberBytes + int64(len(x.own))*valueBytes
}

// add adds the latest change, with number n.
func (x *historyIndex) add(n uint64, e *change) {
	var values [2]string
	for _, value := range x.appendIn(e, values[:0]) {
		l := x.own[value]
		if l == nil {
			l = &numbers{}
			x.own[strings.Clone(value)] = l // it may be a part of an object that the history forgets
		}
		l.list = append(l.list, n)
		x.entries++
	}
}

// forget removes the oldest change, with number n.
func (x *historyIndex) forget(n uint64, e *change) {
	if n < x.from {
		return
	}
	var values [2]string
	for _, value := range x.appendIn(e, values[:0]) {
		l := x.own[value]
		l.list = l.list[1:]
		x.entries--
		if len(l.list) == 0 {
			delete(x.own, value)
		}
	}
}

// count returns the number of the cache's own changes that have one of the values.
func (x *historyIndex) count(values []string) (n int) {
	for _, v := range values {
		if l := x.own[v]; l != nil {
			n += len(l.list)
		}
	}
	return n
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
	for _, p := range f.searched() {
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
func (s historySearch) next(h *history, n, end uint64) uint64 {
	if n >= end || s.index == nil || n < max(h.live, s.index.from) {
		return min(n, end)
	}
	for _, v := range s.values {
		if l := s.index.own[v]; l != nil {
			if i, _ := slices.BinarySearch(l.list, n); i < len(l.list) {
				end = min(end, l.list[i])
			}
		}
	}
	return end
}
