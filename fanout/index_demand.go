package fanout

import (
	"slices"
	"strings"
	"sync"
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
	// maxDemanded bounds the attributes whose demand is known.
	maxDemanded = 256
)

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
		a.label = strings.Clone(a.label) // it may be a part of a long selector
		d.missed[a] = n
		return false
	}
	delete(d.missed, a)
	return d.wantLocked(a)
}

// wantLocked makes an index wanted, and reports whether it is.
func (d *indexDemand) wantLocked(a attribute) bool {
	switch {
	case slices.Contains(d.wanted, a):
	case len(d.wanted) == maxIndexes:
		return false
	default:
		a.label = strings.Clone(a.label)
		d.wanted = append(d.wanted, a)
	}
	return true
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

// demandFor notes the demand for the indexes that f could use and that the collection does not
// have.
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
