package fanout

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/btree"

	"github.com/watchfan/watchfan/framing"
)

const (
	// maxIndexes bounds the indexes of a cache. Their memory is at most one maxIndexShare-th of the
	// objects' bytes when one is built, or leastIndexBytes if that is more.
	maxIndexes      = 16
	maxIndexShare   = 8
	leastIndexBytes = 16 << 20
	// keepIndexFor is how long an unused index is kept if there is no room for another one. So
	// clients that select by ever different labels cost the Indexer 16 indexes a minute at most.
	keepIndexFor = time.Minute
	// buildStep is how many objects or changes are indexed in one step, of some 50 µs.
	buildStep = 128
)

// buildIndex builds the index of an attribute, which f wants, from a snapshot, applies the changes since,
// which the history has, and then has the cache use it. rest is called after each step. If it returns
// false, or if the history has forgotten some of the changes, the index is given up. One goroutine at a
// time calls buildIndex.
func (c *Cache) buildIndex(a attribute, f *Filter, rest func() bool) {
	x, from := c.beginBuild(a, f)
	if x == nil || !x.addAll(from.tree, rest) {
		return
	}
	for at := from.moment; ; at.number += buildStep {
		changes, done := c.finishBuild(x, at)
		applyAll(changes, x.store)
		if done || !rest() {
			return
		}
	}
}

// addAll indexes the objects of a tree that does not change. It reports false if rest did.
func (x *secondaryIndex) addAll(tree *btree.BTreeG[*framing.Object], rest func() bool) bool {
	n, more := 0, true
	tree.Ascend(func(o *framing.Object) bool {
		x.store(nil, o)
		if n++; n%buildStep == 0 {
			more = rest()
		}
		return more
	})
	return more && rest()
}

// beginBuild returns a new index, and the instant whose objects it is to have first. It returns nil
// if the index is not needed, or if there is no room for it.
func (c *Cache) beginBuild(a attribute, f *Filter) (x *secondaryIndex, from *instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil || c.objects.index(a) != nil || c.objects.tree.Len() < leastIndexed {
		return nil, nil
	}
	size := c.indexBytesLocked() + int64(c.objects.tree.Len())*entryBytes
	if size > max(c.bytes/maxIndexShare, leastIndexBytes) || len(c.objects.indexes) >= maxIndexes && !c.replaceIndexLocked() {
		return nil, nil
	}
	return newSecondaryIndex(a, f), c.snapshotLocked().instant
}

// replaceIndexLocked makes room for another index: it drops the one that has been unused for the
// longest time. It reports false if all are in use.
func (c *Cache) replaceIndexLocked() bool {
	oldest := slices.MinFunc(c.objects.indexes, func(a, b *secondaryIndex) int {
		return cmp.Compare(a.use.time(), b.use.time())
	})
	if MonotonicNow()-oldest.use.time() < MonotonicTime(keepIndexFor) {
		return false
	}
	c.keepIndexesLocked(func(x *secondaryIndex) bool { return x != oldest })
	return true
}

// finishBuild applies the changes since a moment, and has the cache use the index from now on. If there
// are too many, it returns the first of them for the caller to apply. done is true if there is nothing
// more to do, because the index is in use or because it is given up.
func (c *Cache) finishBuild(x *secondaryIndex, at moment) (changes []*change, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil || at.lineage != c.lineage || at.number < c.history.live {
		return nil, true
	}
	if c.history.next-at.number > buildStep {
		return c.history.between(at.number, at.number+buildStep), false
	}
	applyAll(c.history.between(at.number, c.history.next), x.store)
	c.objects.indexes = append(c.objects.indexes, x)
	c.history.indexes = append(c.history.indexes, newHistoryIndex(x, c.history.next))
	c.shareIndexesLocked()
	c.indexed.Add(1)
	return nil, true
}

// shareIndexesLocked has the next snapshots have the cache's indexes, and the same objects as the
// last one.
func (c *Cache) shareIndexesLocked() {
	if c.shared != nil {
		shared := *c.shared
		shared.indexes = c.objects.cloneIndexes()
		c.shared = &shared
	}
}

// keepIndexesLocked drops the indexes for which keep returns false. Snapshots that have them keep
// them.
func (c *Cache) keepIndexesLocked(keep func(*secondaryIndex) bool) {
	before := len(c.objects.indexes)
	c.objects.indexes = slices.DeleteFunc(c.objects.indexes, func(x *secondaryIndex) bool { return !keep(x) })
	if len(c.objects.indexes) == before {
		return
	}
	c.history.indexes = slices.DeleteFunc(c.history.indexes, func(x *historyIndex) bool {
		return c.objects.index(x.attribute) == nil
	})
	c.shareIndexesLocked()
}

func (c *Cache) dropIndexesLocked() { c.keepIndexesLocked(func(*secondaryIndex) bool { return false }) }

func (c *Cache) indexBytesLocked() (n int64) {
	for _, x := range c.objects.indexes {
		n += x.bytes()
	}
	for _, x := range c.history.indexes {
		n += x.bytes()
	}
	return n
}
