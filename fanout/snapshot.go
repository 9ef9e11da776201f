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

	*instant
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
// given one ("" for all), until yield returns false. See type search for the cost.
func (s Snapshot) Ascend(f *Filter, after string, yield func(*framing.Object) bool) {
	s.Visit(f, after, func(o *framing.Object, selected bool) bool { return !selected || yield(o) })
}

// Visit is Ascend that also calls visit for objects that it had to look at and that f does not
// select. So a caller sees how long the search takes.
func (s Snapshot) Visit(f *Filter, after string, visit func(o *framing.Object, selected bool) bool) {
	newSearch(s.instant, f).whole(after, visit)
}

// All calls yield for each object in key order until yield returns false.
func (s Snapshot) All(yield func(*framing.Object) bool) { s.tree.Ascend(yield) }
