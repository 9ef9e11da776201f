package fanout

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Indexer builds the indexes of caches, one after another, and gives up those that are not used. It also
// packs their objects. Its methods may be called from any goroutine.
type Indexer struct {
	wakec chan struct{} // one token: a cache wants an index; never closed

	mu     sync.Mutex
	caches map[*Cache]struct{} // those that are not closed
	resume time.Time           // no index is built before
}

const (
	// indexIdleFor is how long an index is kept that no search uses.
	indexIdleFor = 5 * time.Minute
	// sweepIndexes is the accuracy of the times after which something is given up.
	sweepIndexes = 15 * time.Second
	// buildTurn is how long an index is built before goroutines that wait for a processor have
	// their turn. A busy shard's turn takes up to 10 ms.
	buildTurn = 2 * time.Millisecond
	// noneAfterShed is how long no index is built after memory was short.
	noneAfterShed = time.Minute
)

// NewIndexer returns an Indexer for any number of caches. The caller calls Run.
func NewIndexer() *Indexer {
	return &Indexer{wakec: make(chan struct{}, 1), caches: make(map[*Cache]struct{})}
}

// IndexWith has x keep the indexes of the cache until that is closed. It is called before the cache is
// used. Without it the cache has no indexes.
func (c *Cache) IndexWith(x *Indexer) {
	c.indexer = x
	x.mu.Lock()
	defer x.mu.Unlock()
	x.caches[c] = struct{}{}
}

// forget ends what x does for a cache.
func (x *Indexer) forget(c *Cache) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.caches, c)
}

// Run builds indexes until ctx ends.
func (x *Indexer) Run(ctx context.Context) {
	tick := time.NewTicker(sweepIndexes)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.wakec:
			turn := turns(ctx)
			x.buildWanted(func() bool { return turn() && !x.pauses() })
		case <-tick.C:
			x.sweep(MonotonicNow())
			x.pack(MonotonicNow(), turns(ctx))
		}
	}
}

// turns returns what is called after each step of long work. It lets goroutines that wait for a processor
// have their turn, and reports false once ctx has ended.
func turns(ctx context.Context) func() bool {
	began := time.Now()
	return func() bool {
		if time.Since(began) >= buildTurn {
			runtime.Gosched()
			began = time.Now()
		}
		return ctx.Err() == nil
	}
}

// Shed gives up all indexes because memory is short. None is built for a minute then.
func (x *Indexer) Shed() {
	x.mu.Lock()
	x.resume = time.Now().Add(noneAfterShed)
	x.mu.Unlock()
	for _, c := range x.all() {
		c.shedIndexes()
	}
}

// wake says that a cache wants indexes.
func (x *Indexer) wake() {
	select {
	case x.wakec <- struct{}{}:
	default:
	}
}

func (x *Indexer) pauses() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Now().Before(x.resume)
}

func (x *Indexer) all() []*Cache {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.caches))
}

// buildWanted builds the indexes that are wanted.
func (x *Indexer) buildWanted(rest func() bool) {
	for _, c := range x.all() {
		for a, f := range c.demand.take() {
			if rest() {
				c.buildIndex(a, f, rest)
			}
		}
	}
}

// sweep gives up the indexes that have not been used for too long.
func (x *Indexer) sweep(now MonotonicTime) {
	for _, c := range x.all() {
		c.mu.Lock()
		c.keepIndexesLocked(func(x *secondaryIndex) bool { return now-x.use.time() < MonotonicTime(indexIdleFor) })
		c.mu.Unlock()
		c.demand.decay()
	}
}

func (c *Cache) shedIndexes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropIndexesLocked()
}

const (
	// leastIndexed is the least number of objects for which an index is built. Fewer are searched
	// in some 10 µs.
	leastIndexed = 256
	// leastMissed is the least number of objects that a search must look at in vain to count.
	leastMissed = 64
	// An index is built after searches that could have used it have looked in vain at wastedFor
	// times as many objects as there are. That takes about as long as building it.
	wastedFor = 2
	// A filter has an index of its own if it selects at most one object in littleShare: to send more takes
	// longer than to find them.
	littleShare = 8
	// maxDemanded bounds the attributes whose demand is known.
	maxDemanded = 256
)

// indexDemand is how much searches have looked at in vain, by the attribute whose index would have
// spared them that.
type indexDemand struct {
	mu     sync.Mutex
	missed map[attribute]int
	wanted map[attribute]*Filter // with a filter that wants it
}

// add notes objects that a search with filter f has missed. It reports whether the index has become
// wanted, because as many as enough were missed.
func (d *indexDemand) add(a attribute, f *Filter, missed, enough int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, known := d.missed[a]
	if !known && len(d.missed) == maxDemanded {
		return false
	}
	a.label = strings.Clone(a.label) // it may be a part of a long selector
	if n += missed; n < enough {
		d.missed[a] = n
		return false
	}
	delete(d.missed, a)
	return d.wantLocked(a, f)
}

// wantLocked makes an index wanted, and reports whether it is.
func (d *indexDemand) wantLocked(a attribute, f *Filter) bool {
	_, wanted := d.wanted[a]
	if !wanted && len(d.wanted) < maxIndexes {
		d.wanted[a], wanted = f, true
	}
	return wanted
}

// take returns the wanted attributes, which are no longer wanted then.
func (d *indexDemand) take() map[attribute]*Filter {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := d.wanted
	d.wanted = make(map[attribute]*Filter)
	return wanted
}

// decay halves the demand.
func (d *indexDemand) decay() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a, n := range d.missed {
		if d.missed[a] = n / 2; n/2 < leastMissed {
			delete(d.missed, a)
		}
	}
}

// noteMissedChanges is noteMissed for changes that a replay has looked at.
func (c *Cache) noteMissedChanges(f *Filter, looked, missed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteMissed(&c.objects, f, looked, missed)
}

// noteMissed notes that a search with filter f has looked at objects, and that f does not select some of
// them. That is a demand for the indexes that f could use and that the collection does not have.
func (c *Cache) noteMissed(in *collection, f *Filter, looked, missed int) {
	if missed < leastMissed || c.indexer == nil || in.tree.Len() < leastIndexed {
		return
	}
	for _, p := range f.searched() {
		little := p.attribute.slot != slotFilter || looked-missed <= looked/littleShare
		if little && in.index(p.attribute) == nil && c.demand.add(p.attribute, f, missed, wastedFor*in.tree.Len()) {
			c.indexer.wake()
		}
	}
}

// wantAgainLocked makes the indexes that there are wanted again.
func (c *Cache) wantAgainLocked() {
	if len(c.objects.indexes) == 0 {
		return
	}
	c.demand.mu.Lock()
	for _, x := range c.objects.indexes {
		c.demand.wantLocked(x.attribute, x.filter)
	}
	c.demand.mu.Unlock()
	c.indexer.wake()
}
