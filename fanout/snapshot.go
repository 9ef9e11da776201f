package fanout

import (
	"weak"

	"github.com/google/btree"

	"github.com/watchfan/watchfan/framing"
)

// Snapshot is the collection as of one resourceVersion. It is immutable, shares its objects with
// the cache and with other snapshots, and may be used from any goroutine for any length of time.
type Snapshot struct {
	// ResourceVersion is the resourceVersion of a list of this snapshot.
	ResourceVersion uint64

	tree *btree.BTreeG[*framing.Object]
}

// onlyKey returns the only key that a filter can select; "" if it can select others. In cluster
// scope that is the name. All objects of a cache have the same scope.
func (s Snapshot) onlyKey(f *Filter) string {
	switch {
	case f.name == "":
		return ""
	case f.namespace != "":
		return f.namespace + "/" + f.name
	}
	if o, ok := s.tree.Min(); ok && o.Namespace == "" {
		return f.name
	}
	return ""
}

// degree is the B-tree's: while a snapshot is held, a change copies a few nodes of up to 63
// pointers.
const degree = 32

func newTree() *btree.BTreeG[*framing.Object] {
	return btree.NewG(degree, func(a, b *framing.Object) bool { return a.Key < b.Key })
}

// Identity is equal for snapshots that hold the same objects because nothing changed between them.
// It does not keep them in memory.
func (s Snapshot) Identity() Identity { return Identity{weak.Make(s.tree)} }

// Identity identifies a snapshot. It is comparable.
type Identity struct {
	tree weak.Pointer[btree.BTreeG[*framing.Object]]
}

// Len is the number of objects in the snapshot, of all namespaces.
func (s Snapshot) Len() int { return s.tree.Len() }

// Get returns the object with the given key ([framing.Object.Key]).
func (s Snapshot) Get(key string) (*framing.Object, bool) {
	return s.tree.Get(&framing.Object{Key: key})
}

// Ascend calls yield for each object that f selects, in key order, from the first key after the
// given one ("" for all), until yield returns false.
func (s Snapshot) Ascend(f *Filter, after string, yield func(*framing.Object) bool) {
	s.ascend(f, after, func(o *framing.Object, selected bool) bool { return !selected || yield(o) })
}

// Visit is Ascend that also calls visit for objects that it had to look at and that f does not
// select. So a caller sees how long the search takes.
func (s Snapshot) Visit(f *Filter, after string, visit func(o *framing.Object, selected bool) bool) {
	s.ascend(f, after, visit)
}

// ascend calls visit for each object that f might select, in key order, from the first key after
// the given one, until visit returns false. selected says whether f selects the object.
func (s Snapshot) ascend(f *Filter, after string, visit func(o *framing.Object, selected bool) bool) {
	if f.nothing {
		return
	}
	if key := s.onlyKey(f); key != "" {
		if o, ok := s.Get(key); ok && key > after {
			visit(o, f.Match(o))
		}
		return
	}
	within := func(o *framing.Object) bool {
		if f.namespace != "" && o.Namespace != f.namespace {
			return false // past the namespace, whose keys are adjacent
		}
		return o.Key == after || visit(o, f.Match(o))
	}
	from := after
	if f.namespace != "" && from < f.namespace+"/" {
		from = f.namespace + "/"
	}
	if from == "" {
		s.tree.Ascend(within)
		return
	}
	s.tree.AscendGreaterOrEqual(&framing.Object{Key: from}, within)
}

// All calls yield for each object in key order until yield returns false.
func (s Snapshot) All(yield func(*framing.Object) bool) { s.tree.Ascend(yield) }
