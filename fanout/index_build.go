package fanout

import (
	"cmp"
	"slices"
	"time"

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
)

// indexBuild is an index that is being built.
type indexBuild struct {
	index   *secondaryIndex
	pending []*change // changes since the instant from which it is built
}

// mostPending bounds the changes that the writer notes for an index that is being built. It takes
// 50 ms to index a collection of 100,000 objects, so only a relist has more.
const mostPending = 1 << 16

// note notes a change of the collection. It reports false if there are too many, and the index is
// given up.
func (b *indexBuild) note(e *change) bool {
	b.pending = append(b.pending, e)
	return len(b.pending) <= mostPending
}

// buildIndex builds the index of an attribute, and then has the cache use it. The writer only notes
// its changes meanwhile. rest is called after each step of some 50 µs. If it returns false, the
// index is given up. One goroutine at a time calls buildIndex.
func (c *Cache) buildIndex(a attribute, rest func() bool) {
	b, from := c.beginBuild(a)
	if b != nil && (!b.addAll(from, rest) || !c.catchUpBuild(b, rest)) {
		c.abandonBuild(b)
	}
}

// addAll indexes all objects of an instant. It reports false if rest did.
func (b *indexBuild) addAll(from *instant, rest func() bool) bool {
	for after, more := "", true; more; {
		if after, more = b.add(from, after); !rest() {
			return false
		}
	}
	return true
}

// catchUpBuild applies the changes since to the index, and has the cache use it. It reports false
// if rest did.
func (c *Cache) catchUpBuild(b *indexBuild, rest func() bool) bool {
	for {
		pending, done := c.finishBuild(b)
		if done {
			return true
		}
		for some := range slices.Chunk(pending, buildStep) {
			if applyAll(some, true, b.index.store); !rest() {
				return false
			}
		}
	}
}

// buildStep is how many objects or changes are indexed in one step.
const buildStep = 128

// beginBuild begins to build an index of the objects in from. It returns nil if the index is not
// needed, or if there is no room for it.
func (c *Cache) beginBuild(a attribute) (b *indexBuild, from *instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil || c.build != nil || c.objects.index(a) != nil || c.objects.tree.Len() < leastIndexed {
		return nil, nil
	}
	size := c.indexBytesLocked() + int64(c.objects.tree.Len())*entryBytes
	if size > max(c.bytes/maxIndexShare, leastIndexBytes) || len(c.objects.indexes) >= maxIndexes && !c.replaceIndexLocked() {
		return nil, nil
	}
	c.build = &indexBuild{index: newSecondaryIndex(a)}
	return c.build, c.snapshotLocked().instant
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

// add indexes the next objects after a key. It returns the key of the last one, and whether there
// are more.
func (b *indexBuild) add(from *instant, after string) (last string, more bool) {
	n := 0
	ascendFrom(from.tree, after, func(o *framing.Object) bool {
		if n == buildStep {
			more = true
			return false
		}
		if o.Key != after {
			b.index.store(nil, o)
			last = o.Key
			n++
		}
		return true
	})
	return last, more
}

// finishBuild applies the last changes, and has the cache use the index from now on. If there are
// too many changes, it returns them for the caller to apply. done is true if there is nothing more
// to do, because the index is in use or because it is not needed any more.
func (c *Cache) finishBuild(b *indexBuild) (pending []*change, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.build != b {
		return nil, true
	}
	if len(b.pending) > buildStep {
		pending, b.pending = b.pending, nil
		return pending, false
	}
	applyAll(b.pending, true, b.index.store)
	c.build = nil
	c.objects.indexes = append(c.objects.indexes, b.index)
	c.history.indexes = append(c.history.indexes, newHistoryIndex(b.index, c.history.next))
	if c.shared != nil { // the same objects, with one more index
		shared := *c.shared
		shared.indexes = append(slices.Clone(shared.indexes), b.index.clone())
		c.shared = &shared
	}
	c.indexed.Add(1)
	return nil, true
}

func (c *Cache) abandonBuild(b *indexBuild) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.build == b {
		c.build = nil
	}
}

// indexBytesLocked returns the memory of the indexes.
func (c *Cache) indexBytesLocked() (n int64) {
	for _, x := range c.objects.indexes {
		n += x.bytes()
	}
	for _, x := range c.history.indexes {
		n += x.bytes()
	}
	return n
}
