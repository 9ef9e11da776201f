package fanout

import (
	"slices"
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
	x := search{in: s.instant, filter: f}
	x.plan()
	x.ascend(after, visit)
}

// All calls yield for each object in key order until yield returns false.
func (s Snapshot) All(yield func(*framing.Object) bool) { s.tree.Ascend(yield) }

// collection is the objects of a cache at one instant: by key, and by the values of the indexed
// attributes. All its trees have the same objects at any time.
type collection struct {
	tree    *btree.BTreeG[*framing.Object]
	indexes []*secondaryIndex
}

func newCollection() collection { return collection{tree: newTree()} }

// degree is the B-trees': while a snapshot is held, a change copies a few nodes of up to 63 items.
const degree = 32

func newTree() *btree.BTreeG[*framing.Object] {
	return btree.NewG(degree, func(a, b *framing.Object) bool { return a.Key < b.Key })
}

// store replaces the version prev of an object by the version cur. Either is nil if there is none.
func (c *collection) store(prev, cur *framing.Object) {
	if cur != nil {
		c.tree.ReplaceOrInsert(cur)
	} else {
		c.tree.Delete(prev)
	}
	for _, x := range c.indexes {
		x.store(prev, cur)
	}
}

// clone returns a copy. The two share all nodes that neither changes afterwards. It takes the same
// time for any number of objects.
func (c *collection) clone() collection { return collection{c.tree.Clone(), c.cloneIndexes()} }

func (c *collection) cloneIndexes() (clones []*secondaryIndex) {
	for _, x := range c.indexes {
		clones = append(clones, x.clone())
	}
	return clones
}

// index returns the index of an attribute; nil if there is none.
func (c *collection) index(a attribute) *secondaryIndex {
	i := slices.IndexFunc(c.indexes, func(x *secondaryIndex) bool { return x.attribute == a })
	if i < 0 {
		return nil
	}
	return c.indexes[i]
}

// instant is a collection that does not change any more, and its place in the cache's changes.
type instant struct {
	collection
	moment
	cache *Cache
}

// moment is a place in a cache's changes: the outcome of all changes of a lineage whose numbers in
// the history are smaller. It is zero if that is not known.
type moment struct{ lineage, number uint64 }

// versions returns the versions of an object before and after the change, as the collection holds
// them. ok is false if the change does not alter the collection.
func (e *change) versions() (before, after *framing.Object, ok bool) {
	switch {
	case e.recipients == leaving: // the staying half stores it
		return nil, nil, false
	case e.Type == framing.Deleted:
		return e.Prev, nil, true
	}
	return e.Prev, e.Object, true
}

// applyAll calls store for each change of the collection, in their order.
func applyAll(changes []*change, store func(prev, cur *framing.Object)) {
	for _, e := range changes {
		if before, after, ok := e.versions(); ok {
			store(before, after)
		}
	}
}

// undoAll calls store for each change of the collection, from the last to the first, with the
// versions the other way round.
func undoAll(changes []*change, store func(prev, cur *framing.Object)) {
	for _, e := range slices.Backward(changes) {
		if before, after, ok := e.versions(); ok {
			store(after, before)
		}
	}
}

// mostUndone bounds the changes that are undone in an index for an earlier moment.
const mostUndone = 1024

// completeIndexes returns an instant with the same objects that also has the indexes that were
// built since, as far as f can use them and few objects have changed since. It returns in if there
// are none.
func (c *Cache) completeIndexes(in *instant, f *Filter) *instant {
	more := *in
	var since []*change
	c.mu.Lock()
	if in.lineage == c.lineage && in.number >= c.history.live && c.history.next-in.number <= mostUndone {
		for _, p := range f.searched() {
			if x := c.objects.index(p.attribute); x != nil && more.index(p.attribute) == nil {
				more.indexes = append(slices.Clip(more.indexes), x.clone())
				since = c.history.between(in.number, c.history.next)
			}
		}
	}
	c.mu.Unlock()
	if len(more.indexes) == len(in.indexes) {
		return in
	}
	for _, x := range more.indexes[len(in.indexes):] {
		undoAll(since, x.store)
	}
	return &more
}
