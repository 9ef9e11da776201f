package fanout

import (
	"slices"

	"github.com/watchfan/watchfan/framing"
)

// instant is a collection that does not change any more, and its place in the cache's changes.
type instant struct {
	collection
	cache *Cache
	// The collection is the outcome of all changes of this lineage with smaller numbers in the
	// history; see Cache.changesBetween. Lineage 0 says that the place is not known.
	lineage, number uint64
}

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

// changesBetween returns the changes between two places of the history, as far as the same lineage
// has them: from the place of in to number, or the other way.
func (c *Cache) changesBetween(in *instant, lineage, number uint64) (changes []*change, ok bool) {
	if in.lineage != lineage || lineage == 0 {
		return nil, false
	}
	if in.number == number {
		return nil, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changesBetweenLocked(in, lineage, number)
}

func (c *Cache) changesBetweenLocked(in *instant, lineage, number uint64) (changes []*change, ok bool) {
	first, end := min(in.number, number), max(in.number, number)
	if in.lineage != lineage || lineage != c.lineage || first < c.history.first || end-first > mostApplied {
		return nil, false
	}
	for n := first; n < end; n++ {
		changes = append(changes, c.history.at(n))
	}
	return changes, true
}

// applyAll calls store for each change of the collection, in their order, or from the last to the
// first with the versions the other way round.
func applyAll(changes []*change, forwards bool, store func(prev, cur *framing.Object)) {
	for i := range changes {
		if forwards {
			if before, after, ok := changes[i].versions(); ok {
				store(before, after)
			}
		} else if before, after, ok := changes[len(changes)-1-i].versions(); ok {
			store(after, before)
		}
	}
}

// completeIndexes returns an instant with the same objects that also has the indexes that were
// built since, as far as f can use them and few objects have changed since. It returns in if there
// are none.
func (c *Cache) completeIndexes(in *instant, f *Filter) *instant {
	c.mu.Lock()
	changes, ok := c.changesBetweenLocked(in, c.lineage, c.history.next)
	more := *in
	if ok {
		for _, p := range f.places() {
			if x := c.objects.index(p.attribute); x != nil && more.index(p.attribute) == nil {
				more.indexes = append(slices.Clip(more.indexes), x.clone())
			}
		}
	}
	c.mu.Unlock()
	if len(more.indexes) == len(in.indexes) {
		return in
	}
	for _, x := range more.indexes[len(in.indexes):] {
		applyAll(changes, false, x.store)
	}
	return &more
}
