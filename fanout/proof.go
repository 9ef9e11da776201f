package fanout

import "slices"

// Proof says that the cache's state was at one instant the collection's state as of a
// resourceVersion. What the cache held at resourceVersion At of epoch Epoch is what upstream held
// as of AsOf. AsOf may be later than At, because there were no changes in between or they undid
// each other.
//
// A proof in part is about what one filter selects, and nothing else. It is for a read with that filter
// or a narrower one, and no other read is shown what it says.
type Proof struct {
	Epoch    uint64
	At, AsOf uint64
	Part     bool
}

// holds reports whether the proof is about the cache as it is now, or about a state that the cache
// has passed.
func (p Proof) holds(epoch, progress uint64) bool {
	return p.AsOf <= progress || p.Epoch == epoch && p.At == progress
}

// SnapshotProved returns the current collection with the resourceVersion p.AsOf. It returns
// [ErrNotFresh] if p is about another state.
func (c *Cache) SnapshotProved(p Proof) (Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	progress := c.Progress()
	if progress == 0 || !p.holds(c.epoch, progress) {
		return Snapshot{}, ErrNotFresh
	}
	s := c.snapshotLocked()
	if p.AsOf > progress {
		s.ResourceVersion = p.AsOf
		c.shown = max(c.shown, p.AsOf)
		if !p.Part {
			c.noteShownLocked(p)
			c.noteProofLocked(p)
		}
	}
	return s, nil
}

// SnapshotShown returns the current collection with the latest resourceVersion that a client has
// been shown for it. That is progress, or what a proof says.
func (c *Cache) SnapshotShown() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.snapshotLocked()
	if p := c.latestProof; c.shownAheadLocked() {
		s.ResourceVersion = p.AsOf
		c.noteShownLocked(p)
	}
	return s
}

// Shown returns up to which resourceVersion clients may have been told of the collection: progress, or what a
// proof says.
func (c *Cache) Shown() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shownLocked()
}

func (c *Cache) shownLocked() uint64 { return max(c.Progress(), c.shown) }

// shownAheadLocked reports whether a client has been shown the cache as it is now as the state at
// latestProof.AsOf, which is ahead of progress.
func (c *Cache) shownAheadLocked() bool {
	p, progress := c.latestProof, c.Progress()
	return p.Epoch == c.epoch && p.At == progress && progress < p.AsOf
}

// noteShownLocked notes that a client has been shown the state at p.At as the state at p.AsOf. The
// client may ask for the next page of it.
func (c *Cache) noteShownLocked(p Proof) {
	const most = 16
	if slices.Contains(c.shownProofs, p) {
		return
	}
	if len(c.shownProofs) == most {
		c.shownProofs = slices.Delete(c.shownProofs, 0, 1)
	}
	c.shownProofs = append(c.shownProofs, p)
}

// noteProofLocked notes that a client has seen p, which is about the cache as it is now.
func (c *Cache) noteProofLocked(p Proof) {
	if c.latestProof.Epoch != p.Epoch || c.latestProof.At != p.At || c.latestProof.AsOf < p.AsOf {
		c.latestProof = p
	}
}

// noteAheadLocked notes a subscription that begins ahead of the cache: at a requested
// resourceVersion, or with a proof. A relist in between ends it, unless the proof is of the whole, and
// says how the list's differences relate to its start.
func (c *Cache) noteAheadLocked(s *Subscription, r Request) {
	c.shown = max(c.shown, r.Proof.AsOf)
	if r.Start == FromVersion || r.Proof.Part {
		c.ahead[s] = 0
		return
	}
	c.ahead[s] = r.Proof.At
	c.noteProofLocked(r.Proof)
}
