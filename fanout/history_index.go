package fanout

import (
	"slices"
	"strings"
)

// historyIndex finds the changes of the history that may concern a filter, by the value of an
// attribute in the version before or the one after. It is kept beside each secondaryIndex, and
// begins with the changes after that was built. The cache's mutex guards it.
type historyIndex struct {
	attribute attribute
	from      uint64 // changes with smaller numbers are not in it
	byValue   map[string]*numbers
	entries   int
	use       *indexUse // the secondaryIndex's
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
	return int64(x.entries)*numberBytes + int64(len(x.byValue))*valueBytes
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
		l := x.byValue[value]
		if l == nil {
			l = &numbers{}
			x.byValue[strings.Clone(value)] = l // it may be a part of an object that the history forgets
		}
		l.list = append(l.list, n)
		x.entries++
	})
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

// count returns the number of changes that have one of the values.
func (x *historyIndex) count(values []string) (n int) {
	for _, v := range values {
		if l := x.byValue[v]; l != nil {
			n += len(l.list)
		}
	}
	return n
}

// next returns the number of the first change with a number of at least n that has one of the
// values; end if there is none before.
func (x *historyIndex) next(values []string, n, end uint64) uint64 {
	for _, v := range values {
		if l := x.byValue[v]; l != nil {
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
	return s.index.next(s.values, n, end)
}
