package fanout

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/framing"
)

const (
	// leastIndexed is the least number of objects for which an index is built. Fewer are searched
	// in some 10 µs.
	leastIndexed = 256
	// leastMissed is the least number of objects that a search must look at in vain to count.
	leastMissed = 64
	// An index is built after searches that could have used it have looked in vain at wastedFor
	// times as many objects as there are. That takes about as long as building it.
	wastedFor = 2
	// maxIndexes bounds the indexes of a cache. Their memory is at most one maxIndexShare-th of the
	// objects' bytes, or leastIndexBytes if that is more.
	maxIndexes      = 16
	maxIndexShare   = 8
	leastIndexBytes = 16 << 20
	// maxDemanded bounds the attributes whose demand is known.
	maxDemanded = 256
	// indexIdleFor is how long an index is kept that no search uses.
	indexIdleFor = 5 * time.Minute
)

// indexUse says when an index was last used. It may be used from any goroutine.
type indexUse struct{ last atomic.Int64 }

func newIndexUse() *indexUse {
	u := &indexUse{}
	u.note()
	return u
}

func (u *indexUse) note()                { u.last.Store(int64(MonotonicNow())) }
func (u *indexUse) since() MonotonicTime { return MonotonicTime(u.last.Load()) }

// indexDemand is how much searches have looked at in vain, by the attribute whose index would have
// spared them that.
type indexDemand struct {
	mu     sync.Mutex
	missed map[attribute]int
	wanted []attribute
}

// add notes missed objects. It reports whether the index has become wanted, because as many as
// enough were missed.
func (d *indexDemand) add(a attribute, missed, enough int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.missed == nil {
		d.missed = make(map[attribute]int)
	}
	n, known := d.missed[a]
	if !known && len(d.missed) == maxDemanded {
		return false
	}
	if n += missed; n < enough {
		d.missed[a] = n
		return false
	}
	delete(d.missed, a)
	d.wantLocked(a)
	return true
}

func (d *indexDemand) wantLocked(a attribute) {
	if !slices.Contains(d.wanted, a) {
		d.wanted = append(d.wanted, a)
	}
}

// take returns the wanted attributes, which are no longer wanted then.
func (d *indexDemand) take() []attribute {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := d.wanted
	d.wanted = nil
	return wanted
}

// decay halves the demand, and reports whether any is left.
func (d *indexDemand) decay() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a, n := range d.missed {
		if d.missed[a] = n / 2; n/2 < leastMissed {
			delete(d.missed, a)
		}
	}
	return len(d.missed) > 0
}

// noteMissed notes that a search with filter f has looked at objects that f does not select.
func (c *Cache) noteMissed(in *instant, f *Filter, missed int) {
	if missed < leastMissed || c.indexer == nil {
		return
	}
	c.demandFor(f, missed, &in.collection)
}

// noteMissedChanges is noteMissed for changes that a replay has looked at.
func (c *Cache) noteMissedChanges(f *Filter, missed int) {
	if missed < leastMissed || c.indexer == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.demandFor(f, missed, &c.objects)
}

// demandFor notes the demand for the indexes that f could use and that the collection does not have.
func (c *Cache) demandFor(f *Filter, missed int, in *collection) {
	if in.tree.Len() < leastIndexed {
		return
	}
	wanted := false
	for _, p := range f.places() {
		if in.index(p.attribute) == nil && c.demand.add(p.attribute, missed, wastedFor*in.tree.Len()) {
			wanted = true
		}
	}
	if wanted {
		c.indexer.want(c)
	} else {
		c.indexer.note(c)
	}
}

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
// its changes meanwhile. rest is called after each step of some 50 µs; if it returns false, the
// index is given up. One goroutine at a time calls buildIndex.
func (c *Cache) buildIndex(a attribute, rest func() bool) {
	b, from := c.beginBuild(a)
	if b == nil {
		return
	}
	for after, more := "", true; more; {
		if after, more = b.add(from, after); !rest() {
			c.abandonBuild(b)
			return
		}
	}
	from = nil // its objects may go
	for {
		pending, done := c.finishBuild(b)
		if done {
			return
		}
		for some := range slices.Chunk(pending, buildStep) {
			applyAll(some, true, b.index.store)
			if !rest() {
				c.abandonBuild(b)
				return
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
	if len(c.objects.indexes) >= maxIndexes || size > max(c.bytes/maxIndexShare, leastIndexBytes) {
		return nil, nil
	}
	c.build = &indexBuild{index: newSecondaryIndex(a)}
	return c.build, c.snapshotLocked().instant
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
	b.index.use.note()
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

// dropIndexesLocked drops all indexes, also the one that is being built.
func (c *Cache) dropIndexesLocked() {
	c.build = nil
	c.keepIndexesLocked(func(*secondaryIndex) bool { return false })
}

// keepIndexesLocked drops the indexes for which keep returns false. Snapshots that have them keep
// them.
func (c *Cache) keepIndexesLocked(keep func(*secondaryIndex) bool) {
	drop := func(x *secondaryIndex) bool { return !keep(x) }
	if !slices.ContainsFunc(c.objects.indexes, drop) {
		return
	}
	c.objects.indexes = slices.DeleteFunc(c.objects.indexes, drop)
	c.history.indexes = slices.DeleteFunc(c.history.indexes, func(x *historyIndex) bool {
		return c.objects.index(x.attribute) == nil
	})
	if c.shared != nil { // the same objects, with fewer indexes
		shared := *c.shared
		shared.indexes = slices.DeleteFunc(slices.Clone(shared.indexes), drop)
		c.shared = &shared
	}
}

// shedIndexes drops the indexes and the results of searches.
func (c *Cache) shedIndexes() {
	c.mu.Lock()
	c.dropIndexesLocked()
	c.mu.Unlock()
	c.searches.sweep(math.MaxInt64)
}

// sweepIndexes drops the indexes and the results of searches that have not been used for too long.
// It reports whether there is something left to be dropped later.
func (c *Cache) sweepIndexes(now MonotonicTime) bool {
	c.mu.Lock()
	c.keepIndexesLocked(func(x *secondaryIndex) bool { return now-x.use.since() < MonotonicTime(indexIdleFor) })
	indexes, closed := len(c.objects.indexes), c.closed != nil
	c.mu.Unlock()
	searches := c.searches.sweep(now - MonotonicTime(searchFor))
	return c.demand.decay() || searches && !closed || indexes > 0
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

// wantAgainLocked makes the indexes that there are wanted again.
func (c *Cache) wantAgainLocked() {
	if len(c.objects.indexes) == 0 {
		return
	}
	c.demand.mu.Lock()
	for _, x := range c.objects.indexes {
		c.demand.wantLocked(x.attribute)
	}
	c.demand.mu.Unlock()
	c.indexer.want(c)
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

// completeIndexes returns an instant with the same objects that also has the indexes that were built
// since, as far as f can use them and few objects have changed since. It returns in if there are
// none.
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
