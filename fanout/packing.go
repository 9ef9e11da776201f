package fanout

import (
	"time"

	"github.com/watchfan/watchfan/framing"
)

const (
	// packAfter is how long all clients must have been lean before objects are packed.
	packAfter = 5 * time.Minute
	// packStep is how many objects are packed between two looks at the clock, and packScan how many are
	// looked at under the cache's mutex.
	packStep, packScan = 32, 1024
	// packSamples is how many objects others are packed like.
	packSamples = 4
)

// WholeRead notes that a list has shown some objects whole.
func (c *Cache) WholeRead(objects int) { c.wholeReads.Add(int64(objects)) }

// pack packs the objects of caches, and unpacks them. Objects are packed once all watches have been lean
// for some time, and lists have hardly ever been whole. They are whole again after a watch that is not
// lean, or after whole lists of everything one after the other, unless memory is short. turn is called
// after each step, and reports false if there may be no other.
func (x *Indexer) pack(now MonotonicTime, turn func() bool) {
	for _, c := range x.all() {
		packs, unpacks := c.choosePacking(now)
		for from, more := "", packs || unpacks && !x.pauses(); more && turn(); {
			from, more = c.packStep(from)
		}
	}
}

// choosePacking decides whether new versions are packed, or what has been packed is unpacked.
func (c *Cache) choosePacking(now MonotonicTime) (packs, unpacks bool) {
	c.mu.Lock()
	lean, whole := c.formsWantedLocked()
	reads := c.wholeReads.Load()
	c.wholeReads.Add(-(reads + 1) / 2)
	if whole || reads > int64(c.objects.tree.Len()) {
		c.packing, c.wholeAt = nil, now
	}
	packs, unpacks = c.packing != nil, c.hasPacked
	begins := !packs && lean && now-c.wholeAt >= MonotonicTime(packAfter)
	c.mu.Unlock()
	if begins {
		c.beginPacking()
	}
	return packs || begins, unpacks
}

// formsWantedLocked reports whether clients have lean watches, and others. lean may be false if whole is
// true.
func (c *Cache) formsWantedLocked() (lean, whole bool) {
	for _, g := range c.groups {
		if g.variant.Trim == framing.Lean {
			lean = true
		} else if g.members > g.beside {
			return lean, true
		}
	}
	return lean, c.eventsOnly
}

// beginPacking has new versions packed like some of the objects.
func (c *Cache) beginPacking() {
	s := c.Snapshot()
	var samples []*framing.Object
	n, every := 0, max(1, s.Len()/packSamples)
	s.All(func(o *framing.Object) bool {
		if n++; n%every == 0 {
			samples = append(samples, o)
		}
		return len(samples) < packSamples
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(samples) > 0 && c.closed == nil {
		c.packing, c.hasPacked = framing.NewPacking(samples), true
	}
}

// packStep packs or unpacks the next objects from a key on. It returns where to go on.
func (c *Cache) packStep(from string) (next string, more bool) {
	c.mu.Lock()
	p := c.packing
	olds, next, more := c.unfitLocked(from)
	c.mu.Unlock()
	news := make([]*framing.Object, len(olds))
	for i, o := range olds {
		if news[i] = o.Whole(); p != nil {
			news[i] = p.Pack(o)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, o := range olds {
		if now, ok := c.objects.tree.Get(o); ok && now == o && c.packing == p && news[i] != o {
			c.exchangeLocked(o, news[i])
		}
	}
	return next, more
}

// unfitLocked returns some objects from a key on that are to be packed, or unpacked, and where to go on. What
// the history has is not packed: it would be held twice.
func (c *Cache) unfitLocked(from string) (unfit []*framing.Object, next string, more bool) {
	seen := 0
	c.objects.tree.AscendGreaterOrEqual(&framing.Object{Key: from}, func(o *framing.Object) bool {
		if seen++; seen > packScan || len(unfit) == packStep {
			next, more = o.Key, true
			return false
		}
		if o.Packed() != (c.packing != nil) && (o.Packed() || o.ResourceVersion <= c.history.after) {
			unfit = append(unfit, o)
		}
		return true
	})
	return unfit, next, more
}

// exchangeLocked has the cache hold a version of an object as another object, which is the same to clients.
func (c *Cache) exchangeLocked(old, now *framing.Object) {
	c.shared = nil
	c.bytes += int64(now.Size() - old.Size())
	c.givenUp.Add(uint64(old.Size()))
	now.CountForms(c.forms)
	old.ForgetForms()
	c.objects.store(old, now)
}
