package fanout

import (
	"strings"
	"sync/atomic"

	"github.com/google/btree"

	"github.com/watchfan/watchfan/framing"
)

// indexed is what an index is of: an attribute, or with slotFilter what a filter selects, all of it with
// the value "". It is immutable.
type indexed struct {
	attribute attribute
	filter    *Filter   // nil without slotFilter
	use       *indexUse // of all clones of the index together
}

// of returns an object's value, if it has one.
func (x *indexed) of(o *framing.Object) (value string, has bool) {
	if x.filter != nil {
		return "", x.filter.Match(o)
	}
	return x.attribute.of(o)
}

// appendIn appends to values those after a change and before it, each once.
func (x *indexed) appendIn(e *change, values []string) []string {
	if x.filter == nil {
		return x.attribute.appendIn(e, values)
	}
	if x.filter.Match(e.Object) || e.Prev != nil && x.filter.Match(e.Prev) {
		values = append(values, "")
	}
	return values
}

// secondaryIndex is the objects of a collection that have a value, in the order of the values and,
// within a value, in the order of their keys. Like the tree of all objects it is a copy-on-write
// B-tree.
type secondaryIndex struct {
	indexed
	tree *btree.BTreeG[entry]
}

// entry is an object in an index. The value is a part of the object.
type entry struct {
	value  string
	object *framing.Object
}

// entryBytes is the memory of an entry: 24 bytes in nodes that are about two thirds full, and the
// share of the nodes above.
const entryBytes = 40

// newSecondaryIndex returns an index without objects. f wants it.
func newSecondaryIndex(a attribute, f *Filter) *secondaryIndex {
	if a.slot != slotFilter {
		f = nil
	}
	x := &secondaryIndex{
		indexed: indexed{a, f, &indexUse{}},
		tree: btree.NewG(degree, func(a, b entry) bool {
			if c := strings.Compare(a.value, b.value); c != 0 {
				return c < 0
			}
			return a.object.Key < b.object.Key
		}),
	}
	x.use.note()
	return x
}

func (x *secondaryIndex) clone() *secondaryIndex {
	return &secondaryIndex{x.indexed, x.tree.Clone()}
}

// store replaces the version prev of an object by the version cur. Either is nil if there is none.
func (x *secondaryIndex) store(prev, cur *framing.Object) {
	var value string
	var has bool
	if cur != nil {
		value, has = x.of(cur)
	}
	if prev != nil {
		if old, had := x.of(prev); had && (!has || old != value) {
			x.tree.Delete(entry{old, prev})
		}
	}
	if has {
		x.tree.ReplaceOrInsert(entry{value, cur})
	}
}

func (x *secondaryIndex) bytes() int64 { return int64(x.tree.Len()) * entryBytes }

// ascend calls yield for each object that has one of the values, in key order, beginning with the
// key from, until yield returns false.
func (x *secondaryIndex) ascend(values []string, from string, yield func(*framing.Object) bool) {
	if len(values) != 1 {
		x.merge(values, from, yield)
		return
	}
	value := values[0]
	x.tree.AscendGreaterOrEqual(entry{value, &framing.Object{Key: from}}, func(e entry) bool {
		return e.value == value && yield(e.object)
	})
}

// count returns the number of objects that have one of the values and whose keys begin with prefix,
// but at most most.
func (x *secondaryIndex) count(values []string, prefix string, most int) (n int) {
	for _, value := range values {
		if n >= most {
			break
		}
		x.tree.AscendGreaterOrEqual(entry{value, &framing.Object{Key: prefix}}, func(e entry) bool {
			if e.value != value || !strings.HasPrefix(e.object.Key, prefix) {
				return false
			}
			n++
			return n < most
		})
	}
	return n
}

// run is the next objects of one value.
type run struct {
	value   string
	objects []*framing.Object
	from    string // where the objects after these begin
	last    bool   // there are none after these
}

// runLength is how many objects of a value are read at once.
const runLength = 64

// merge calls yield for each object that has one of the values, in key order.
func (x *secondaryIndex) merge(values []string, from string, yield func(*framing.Object) bool) {
	runs := make([]run, len(values))
	for i, value := range values {
		runs[i] = run{value: value, from: from}
	}
	for {
		var least *run
		for i := range runs {
			r := &runs[i]
			if len(r.objects) == 0 && !r.last {
				x.read(r)
			}
			if len(r.objects) > 0 && (least == nil || r.objects[0].Key < least.objects[0].Key) {
				least = r
			}
		}
		if least == nil || !yield(least.objects[0]) {
			return
		}
		least.objects = least.objects[1:]
	}
}

func (x *secondaryIndex) read(r *run) {
	r.objects, r.last = nil, true
	x.ascend([]string{r.value}, r.from, func(o *framing.Object) bool {
		if len(r.objects) == runLength {
			r.from, r.last = o.Key, false
			return false
		}
		r.objects = append(r.objects, o)
		return true
	})
}

// indexUse says when an index was last used, or built. It may be used from any goroutine.
type indexUse struct{ last atomic.Int64 }

func (u *indexUse) note()               { u.last.Store(int64(MonotonicNow())) }
func (u *indexUse) time() MonotonicTime { return MonotonicTime(u.last.Load()) }
