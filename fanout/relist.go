package fanout

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// Replace makes the cache hold exactly objects, the collection as of resourceVersion rv. If the
// cache held something before, the differences go to the subscriptions and into the history: see the
// package comment, Relists. Replace returns the number of differences. It returns [ErrBackwards] if rv
// is older than what the cache has shown, and [ErrReencoded] if an object has other bytes than were
// shown at its resourceVersion. Then the caller must call Reset.
func (c *Cache) Replace(objects []*framing.Object, rv uint64, received time.Time) (differences int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.Progress()
	if before == 0 {
		c.resetLocked(objects, rv)
		return 0, nil
	}
	if rv < before {
		return 0, fmt.Errorf("%w: list of %d after %d", ErrBackwards, rv, before)
	}
	r := relist{before: before, from: c.relistFromLocked(rv), to: rv}
	removals, versions, err := c.diffLocked(objects, r, MonotonicOf(received))
	if err != nil {
		return 0, err
	}
	c.epoch++
	c.noteRelistLocked(r)
	for _, e := range removals {
		if e.recipients != leaving {
			differences++
		}
		c.commitLocked(e)
	}
	for _, e := range versions {
		c.commitLocked(e)
	}
	// Only now, when all differences are in: a bookmark covers all removals.
	c.advanceLocked(rv)
	return differences + len(versions), nil
}

// relist is one list that replaced the cache's content. The cache's progress was before, its
// objects were also those as of resourceVersion from, and the list is as of to.
type relist struct{ before, from, to uint64 }

// relistFromLocked returns [relist].from for a list: the latest resourceVersion before the list's
// at which the cache's objects are known to be the collection, and which a client may have seen.
// That is progress, or what a proof says.
func (c *Cache) relistFromLocked(list uint64) uint64 {
	if c.shownAheadLocked() && c.latestProof.AsOf < list {
		return c.latestProof.AsOf
	}
	return c.Progress()
}

// noteRelistLocked notes a relist's gaps, in which only the outcome of the changes is known. It
// ends subscriptions that began ahead of the cache and whose start may differ from what the cache
// held.
func (c *Cache) noteRelistLocked(r relist) {
	for _, g := range []relistGap{{r.before, r.from}, {r.from, r.to}} {
		if g.to > g.from+1 {
			c.history.addGap(g)
		}
	}
	for s, at := range c.ahead {
		if (relistGap{r.before, r.to}).has(s.skipTo) && s.skipTo != r.from && at != r.before {
			s.End(Ending{Reason: Expired})
		}
	}
}

// diffLocked returns the removals of r, by key, and then its new versions, by resourceVersion.
func (c *Cache) diffLocked(
	objects []*framing.Object, r relist, received MonotonicTime,
) (removals, versions []*change, err error) {
	listed := make(map[string]*change, len(objects)) // nil for a known version
	for _, o := range objects {
		prev, had := c.objects.tree.Get(o)
		if had && prev.ResourceVersion == o.ResourceVersion {
			if !bytes.Equal(prev.Bytes(), o.Bytes()) {
				return nil, nil, fmt.Errorf("%w: %d", ErrReencoded, o.ResourceVersion)
			}
			listed[o.Key] = nil
			continue
		}
		if o.ResourceVersion <= r.from || o.ResourceVersion > r.to {
			return nil, nil, fmt.Errorf("%w: object %d in a list of %d after %d",
				ErrBackwards, o.ResourceVersion, r.to, r.from)
		}
		e := &change{Type: framing.Added, Object: o, ResourceVersion: o.ResourceVersion, Received: received}
		if had && prev.UID() == o.UID() {
			e.Type, e.Object, e.Prev = framing.Modified, o.As(framing.Modified), prev
		}
		listed[o.Key] = e
		versions = append(versions, e)
	}
	slices.SortStableFunc(versions, func(a, b *change) int { return cmp.Compare(a.ResourceVersion, b.ResourceVersion) })

	// The list's resourceVersion can equal from only if an etcd revision deleted several objects
	// and only a part of those deletions was known.
	at := min(r.from+1, r.to)
	c.objects.tree.Ascend(func(o *framing.Object) bool {
		switch e, ok := listed[o.Key]; {
		case !ok, e != nil && e.Prev == nil:
			removals = append(removals, &change{
				Type: framing.Deleted, Object: o.Deleted(r.from), Prev: o, ResourceVersion: at, Received: received,
			})
		case e != nil && (c.viewed || e.mayLeave()):
			e.recipients = staying
			removals = append(removals, &change{
				Type: e.Type, Object: e.Object, Prev: o, recipients: leaving, ResourceVersion: at, Received: received,
			})
		}
		return true
	})
	return removals, versions, nil
}
