package fanout

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/btree"

	"github.com/watchfan/watchfan/framing"
)

// Limits are the bounds of a cache and of its subscriptions.
type Limits struct {
	// HistoryEvents and HistoryBytes bound the changes that a client can come back to.
	HistoryEvents int
	HistoryBytes  int64
	// ClientFrames and ClientBytes bound how far a subscription may be behind whose client does not
	// take what is written to it. One that falls past either is ended with [Evicted]; so is one
	// that falls many times as far behind although its client reads.
	ClientFrames int
	ClientBytes  int64
}

// Errors of a cache.
var (
	// ErrExpired: the history no longer, or not yet, reaches back to the resourceVersion that
	// was asked for. The caller replays what is missing with [Cache.Extend], or asks upstream.
	ErrExpired = errors.New("resourceVersion is older than the history")
	// ErrRelistGap is ErrExpired for a resourceVersion in a relist gap. The client may have seen
	// changes elsewhere that are in no event here. Upstream has forgotten some of them too, so the
	// caller answers 410 Gone.
	ErrRelistGap = fmt.Errorf("a relist skipped it: %w", ErrExpired)
	// ErrPreviousUnknown: what a selector's client would get depends on versions from before a
	// replay. The caller asks upstream.
	ErrPreviousUnknown = errors.New("history does not tell which objects matched before")
	// ErrNotFresh: the cache is not, or no longer, in the state that a proof was about. The
	// caller proves it again.
	ErrNotFresh = errors.New("cache is not known to be as new as asked")
	// ErrCostly: the filter would have the writer do too much for each change, with all others that
	// there are, or they hold too much memory. The caller asks upstream.
	ErrCostly = errors.New("filters cost too much")
	// ErrClosed: the cache has ended.
	ErrClosed = errors.New("cache is closed")
	// ErrReencoded: a list has an object in other bytes at the resourceVersion that is known. The
	// caller resets the cache.
	ErrReencoded = errors.New("other bytes at the same resourceVersion")
	// ErrBackwards: upstream went back in time, or repeated itself. The caller lists again.
	ErrBackwards = errors.New("resourceVersion did not increase")
)

// Cache is the watch cache of one lane: the snapshot of its objects, the history
// of its recent changes and the subscriptions that follow it.
//
// Apply, Replace and Reset are called by one writer, the lane's reflector. All
// other methods may be called from any goroutine. The mutex is held for the
// constant-time work of one change or one subscription and never while anything is
// written to a client; no client can make the writer, or another client, wait.
type Cache struct {
	limits  Limits
	flusher *Flusher

	// progress is the resourceVersion up to which every change has been applied and
	// appended to the groups: it is stored behind them, so who loads it first and then reads
	// a group to its end has read everything up to it.
	progress atomic.Uint64
	// form is how bookmarks are written; nil until known.
	bookmarkForm atomic.Pointer[framing.BookmarkForm]

	// deliveredEvents and deliveredBytes are added to once for each write, so they have a cache
	// line of their own; see Delivered.
	_                               [64]byte
	deliveredEvents, deliveredBytes atomic.Uint64
	_                               [64]byte

	mu          sync.Mutex
	tree        *btree.BTreeG[*framing.Object]
	shared      *btree.BTreeG[*framing.Object] // clone of tree as it is now, handed out as snapshots; nil if none was asked for
	bytes       int64                          // of the objects in tree
	history     history
	groups      map[string]*group
	index       index
	filters     int                      // bytes that the groups' filters hold
	ahead       map[*Subscription]uint64 // those that began behind a resourceVersion that was yet to come; see [Proof].At, 0 without one
	members     int                      // of all groups
	changed     chan struct{}            // closed and replaced when progress moves and somebody waits; nil if nobody does
	epoch       uint64                   // counts Replace and Reset
	latestProof Proof                    // the one with the latest AsOf that a client was told of
	shownProofs []Proof                  // the latest whose snapshots bear a resourceVersion that the cache has yet to reach
	closed      *Ending
}

// NewCache returns an empty cache whose subscriptions are served by flusher.
// Nothing can be read from it before the first Replace.
func NewCache(limits Limits, flusher *Flusher) *Cache {
	return &Cache{
		limits:  limits,
		flusher: flusher,
		tree:    newTree(),
		history: history{maxEvents: limits.HistoryEvents, maxBytes: limits.HistoryBytes},
		groups:  make(map[string]*group),
	}
}

// Progress is the resourceVersion up to which the cache is known to hold every change; 0 before
// the first Replace.
func (c *Cache) Progress() uint64 { return c.progress.Load() }

// SetBookmarkForm tells how bookmarks are written. Until then none are sent.
func (c *Cache) SetBookmarkForm(f framing.BookmarkForm) {
	if old := c.bookmarkForm.Load(); old != nil && old.HasEnd() && !f.HasEnd() {
		return // a plain bookmark tells less
	}
	c.bookmarkForm.Store(&f)
}

// HasBookmarks reports whether the bookmark that ends initial events can be sent.
func (c *Cache) HasBookmarks() bool {
	f := c.bookmarkForm.Load()
	return f != nil && f.HasEnd()
}

// Stats describes a cache at one instant.
type Stats struct {
	ResourceVersion uint64
	Objects         int
	Bytes           int64 // of the objects
	HistoryEvents   int
	HistoryBytes    int64
	Oldest          uint64 // resourceVersions from here on can be resumed from
	Groups          int
	Subscriptions   int
}

// Stats returns the cache's figures.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		ResourceVersion: c.Progress(),
		Objects:         c.tree.Len(),
		Bytes:           c.bytes,
		HistoryEvents:   int(c.history.next-c.history.first) + len(c.history.replayed),
		HistoryBytes:    c.history.bytes + c.history.replayedBytes,
		Oldest:          c.history.after,
		Groups:          len(c.groups),
		Subscriptions:   c.members,
	}
}

// Delivered returns what has been written to all subscriptions together since NewCache. Initial
// events and bookmarks count.
func (c *Cache) Delivered() (events, bytes uint64) {
	return c.deliveredEvents.Load(), c.deliveredBytes.Load()
}

// Apply applies one change from the upstream watch and wakes whom it concerns.
// It returns [ErrBackwards], and changes nothing, if the change is not newer than what is known.
func (c *Cache) Apply(ev framing.Event, received time.Time) error {
	err := c.apply(ev, received)
	appendSeconds.observe(time.Since(received).Seconds())
	return err
}

func (c *Cache) apply(ev framing.Event, received time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := ev.Object
	prev, had := c.tree.Get(o)
	if rv := c.Progress(); o.ResourceVersion < rv || o.ResourceVersion == rv && !c.sharesRevision(o, ev.Type) {
		return fmt.Errorf("%w: %d after %d", ErrBackwards, o.ResourceVersion, rv)
	}
	e := &change{Type: ev.Type, Object: o, Prev: prev, ResourceVersion: o.ResourceVersion, Received: MonotonicOf(received)}
	switch {
	case ev.Type == framing.Deleted && !had:
		c.advanceLocked(o.ResourceVersion)
		return nil // never shown to anyone
	case ev.Type != framing.Deleted && had:
		e.Type = framing.Modified
		e.Object = o.As(framing.Modified)
	case ev.Type != framing.Deleted:
		e.Type = framing.Added
	}
	c.commitLocked(e)
	c.advanceLocked(o.ResourceVersion)
	return nil
}

// sharesRevision reports whether a change with the resourceVersion of the last one may be
// another change made by the same etcd revision, as the expiry of a lease is, and not a repeat.
func (c *Cache) sharesRevision(o *framing.Object, t framing.EventType) bool {
	if t != framing.Deleted || c.history.next == c.history.first {
		return false
	}
	last := c.history.at(c.history.next - 1)
	return last.Type == framing.Deleted && last.Object.ResourceVersion == o.ResourceVersion && c.tree.Has(o)
}

// commitLocked makes a change part of the snapshot, the history and the groups' lists.
func (c *Cache) commitLocked(e *change) {
	if e.recipients != leaving { // or the other event of the change does it
		c.storeLocked(e)
	}
	c.history.append(e)
	var shared gzipFrames
	c.index.concerned(e, func(g *group) {
		if f, ok := e.frameFor(g.filter); ok {
			g.append(f, &shared, e.ResourceVersion, e.Received)
			g.wake()
		}
	})
}

// storeLocked makes a change part of the snapshot.
func (c *Cache) storeLocked(e *change) {
	c.shared = nil
	if e.Prev != nil {
		c.bytes -= int64(e.Prev.Size())
	}
	if e.Type == framing.Deleted {
		c.tree.Delete(e.Object)
	} else {
		c.tree.ReplaceOrInsert(e.Object)
		c.bytes += int64(e.Object.Size())
	}
}

// Advance tells that nothing changed up to resourceVersion rv behind what has been applied. A
// resourceVersion that is not newer is ignored.
func (c *Cache) Advance(rv uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advanceLocked(rv)
}

// AdvanceFrom is Advance if the cache still stands at resourceVersion at or has gone
// further without being replaced since epoch; it reports whether it did.
func (c *Cache) AdvanceFrom(epoch, at, rv uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch != epoch || c.Progress() < at {
		return false
	}
	c.advanceLocked(rv)
	return true
}

func (c *Cache) advanceLocked(rv uint64) {
	if rv <= c.Progress() {
		return
	}
	c.progress.Store(rv)
	c.notifyLocked()
}

func (c *Cache) notifyLocked() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Changed returns a channel that is closed when Progress next moves or the cache closes.
func (c *Cache) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
		if c.closed != nil {
			c.notifyLocked()
			return closedChan
		}
	}
	return c.changed
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// WaitFor waits until Progress is at least rv.
func (c *Cache) WaitFor(ctx context.Context, rv uint64) error {
	for {
		changed := c.Changed()
		if c.Progress() >= rv {
			return nil
		}
		select {
		case <-changed:
			if c.isClosed() {
				return ErrClosed
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Cache) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed != nil
}

// Replace makes the cache hold exactly objects, the collection as of resourceVersion rv. If it held
// something before, the differences, and only they, go to the subscriptions: what is taken from
// them, then the versions of the list in resourceVersion order; see the package comment, Relists.
// It returns the number of changes in that, and [ErrBackwards] if rv is older than what has been
// shown already, or [ErrReencoded] if an object has other bytes than were shown at its
// resourceVersion: then the caller must Reset.
//
// The history goes on across it, so a client that resumes finds the differences there. Objects may
// have had versions in between that are in no list; nobody sees those. A client that resumes from a
// resourceVersion in between may have seen some elsewhere, and gets [ErrRelistGap].
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
	// Not before all of them are in: a bookmark speaks of all that is taken away.
	c.advanceLocked(rv)
	return differences + len(versions), nil
}

// relist is one list that replaced what the cache held. The cache stood at resourceVersion before,
// its objects were those as of from, and the list is as of to.
type relist struct{ before, from, to uint64 }

// relistFromLocked returns the last resourceVersion in front of a list's that a client may have been
// told, and as of which what the cache holds is the collection: progress, or what a proof says.
func (c *Cache) relistFromLocked(list uint64) uint64 {
	progress := c.Progress()
	if p := c.latestProof; p.Epoch == c.epoch && p.At == progress && progress < p.AsOf && p.AsOf < list {
		return p.AsOf
	}
	return progress
}

// noteRelistLocked notes the gaps of a relist, within which only the outcome of changes is known.
// It ends the subscriptions that began ahead of the cache with something else than what it held.
func (c *Cache) noteRelistLocked(r relist) {
	for _, g := range []relistGap{{r.before, r.from}, {r.from, r.to}} {
		if g.to > g.from+1 {
			c.history.gaps = append(c.history.gaps, g)
		}
	}
	for s, at := range c.ahead {
		if (relistGap{r.before, r.to}).has(s.skip) && s.skip != r.from && at != r.before {
			s.End(Ending{Reason: Expired})
		}
	}
}

// diffLocked returns what l takes from clients, by key, and then its new versions, by
// resourceVersion.
func (c *Cache) diffLocked(objects []*framing.Object, r relist, received MonotonicTime) (removals, versions []*change, err error) {
	listed := make(map[string]*change, len(objects)) // nil for a version that is known
	for _, o := range objects {
		prev, had := c.tree.Get(o)
		if had && prev.ResourceVersion == o.ResourceVersion {
			if !bytes.Equal(prev.Bytes(), o.Bytes()) {
				return nil, nil, fmt.Errorf("%w: %d", ErrReencoded, o.ResourceVersion)
			}
			listed[o.Key] = nil
			continue
		}
		if o.ResourceVersion <= r.from || o.ResourceVersion > r.to {
			return nil, nil, fmt.Errorf("%w: object %d in a list of %d after %d", ErrBackwards, o.ResourceVersion, r.to, r.from)
		}
		e := &change{Type: framing.Added, Object: o, ResourceVersion: o.ResourceVersion, Received: received}
		if had && prev.UID() == o.UID() {
			e.Type, e.Object, e.Prev = framing.Modified, o.As(framing.Modified), prev
		}
		listed[o.Key] = e
		versions = append(versions, e)
	}
	slices.SortStableFunc(versions, func(a, b *change) int { return cmp.Compare(a.ResourceVersion, b.ResourceVersion) })

	// The list is at from only if it shows that an etcd revision, of which a part was known,
	// deleted several objects.
	at := min(r.from+1, r.to)
	c.tree.Ascend(func(o *framing.Object) bool {
		switch e, ok := listed[o.Key]; {
		case !ok, e != nil && e.Prev == nil:
			removals = append(removals, &change{Type: framing.Deleted, Object: o.Deleted(r.from), Prev: o, ResourceVersion: at, Received: received})
		case e != nil && e.mayLeave():
			e.recipients = staying
			removals = append(removals, &change{Type: e.Type, Object: e.Object, Prev: o, recipients: leaving, ResourceVersion: at, Received: received})
		}
		return true
	})
	return removals, versions, nil
}

// Reset makes the cache hold objects as of resourceVersion rv, whatever it showed
// before, forgets the history and ends every subscription with ending.
func (c *Cache) Reset(objects []*framing.Object, rv uint64, ending Ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endAllLocked(ending)
	c.resetLocked(objects, rv)
}

func (c *Cache) resetLocked(objects []*framing.Object, rv uint64) {
	c.epoch++
	c.tree, c.shared, c.bytes = newTree(), nil, 0
	for _, o := range objects {
		c.tree.ReplaceOrInsert(o)
		c.bytes += int64(o.Size())
	}
	c.history.reset(rv)
	c.progress.Store(rv)
	c.notifyLocked()
}

// Close ends every subscription with ending and lets no other begin.
func (c *Cache) Close(ending Ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return
	}
	c.closed = &ending
	c.endAllLocked(ending)
	c.notifyLocked()
}

// endAllLocked ends the subscriptions and forgets their groups: who subscribes next begins a new one.
func (c *Cache) endAllLocked(ending Ending) {
	for _, g := range c.groups {
		c.dropLocked(g)
		g.ending.Store(&ending)
		for i := range g.parts {
			if p := g.parts[i].Load(); p != nil {
				p.end(ending)
			}
		}
	}
	c.groups = make(map[string]*group)
}

// Snapshot returns the collection as it is.
func (c *Cache) Snapshot() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshotLocked()
}

func (c *Cache) snapshotLocked() Snapshot {
	if c.shared == nil {
		c.shared = c.tree.Clone()
	}
	return Snapshot{ResourceVersion: c.Progress(), tree: c.shared}
}

// SnapshotProved returns the collection as it is, with the resourceVersion as of which p proves it.
// It returns [ErrNotFresh] if p is about another state.
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
		c.noteShownLocked(p)
		c.noteProofLocked(p)
	}
	return s, nil
}

// noteShownLocked remembers that a client has been shown the state at p.At as that of p.AsOf: it may ask
// for more of it.
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

// noteProofLocked remembers that a client has been told of p, which holds, and is about the cache as it
// is now.
func (c *Cache) noteProofLocked(p Proof) {
	if c.latestProof.Epoch != p.Epoch || c.latestProof.At != p.At || c.latestProof.AsOf < p.AsOf {
		c.latestProof = p
	}
}

// SnapshotAt returns the collection as it was at resourceVersion rv, which is between what the
// cache holds and what its history reaches back to. ok is false if it is not, or if that state is
// in a relist gap. It costs a step for each change behind rv.
func (c *Cache) SnapshotAt(rv uint64) (s Snapshot, ok bool) {
	c.mu.Lock()
	at := rv
	for _, p := range c.shownProofs {
		if p.AsOf == rv && p.Epoch == c.epoch {
			at = p.At
		}
	}
	if at > c.Progress() || c.history.inGap(at) {
		c.mu.Unlock()
		return Snapshot{}, false
	}
	events, ok := c.history.read(nil, at, c.history.next, math.MaxInt)
	var tree *btree.BTreeG[*framing.Object]
	if len(events) == 0 {
		tree = c.snapshotLocked().tree
	} else {
		tree = c.tree.Clone()
	}
	c.mu.Unlock()

	for _, e := range slices.Backward(events) {
		switch {
		case e.PrevUnknown:
			return Snapshot{}, false
		case e.Prev != nil:
			tree.ReplaceOrInsert(e.Prev)
		default:
			tree.Delete(e.Object)
		}
	}
	return Snapshot{ResourceVersion: rv, tree: tree}, ok
}

// Epoch counts the times that the cache has been filled from a list.
func (c *Cache) Epoch() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// Extend makes the history begin behind resourceVersion after: events are all changes from there up
// to until, which is where it began so far, in order. It reports whether they fit; they do not if
// the history has forgotten something meanwhile.
func (c *Cache) Extend(events []framing.Event, after, until uint64) bool {
	known := make(map[string]*framing.Object)
	replayed := make([]*change, 0, len(events))
	var bytes int64
	unresolved, lastUnresolved := 0, make(map[string]uint64)
	for _, ev := range events {
		e := &change{Type: ev.Type, Object: ev.Object, Prev: known[ev.Object.Key], ResourceVersion: ev.Object.ResourceVersion}
		e.PrevUnknown = e.Prev == nil && ev.Type != framing.Added
		if e.unresolved() {
			unresolved++
			e.noteUnresolved(lastUnresolved)
		}
		known[ev.Object.Key] = ev.Object
		if ev.Type == framing.Deleted {
			delete(known, ev.Object.Key)
		}
		bytes += e.size()
		replayed = append(replayed, e)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &c.history
	if h.inGap(until) || h.first < h.next && h.at(h.first).ResourceVersion <= until {
		return false // what is left of a relist, or of a lease's expiry, does not go on from there
	}
	if h.after != until || after >= until || h.bytes+h.replayedBytes+bytes > h.maxBytes || len(h.replayed)+len(replayed) > h.maxEvents {
		return false
	}
	h.replayed = append(replayed, h.replayed...)
	h.replayedBytes += bytes
	h.after = after
	if h.unresolved > 0 { // what comes before some of those is known now
		h.resolve(make(map[string]*framing.Object))
	} else {
		h.unresolved, h.lastUnresolved = unresolved, lastUnresolved
	}
	return true
}

// Unknown returns the keys of the objects whose versions as of resourceVersion after, behind which
// the history begins, would decide what it has for clients with selectors. There are none unless it
// has been extended.
func (c *Cache) UnresolvedKeys() (keys []string, after uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.history.unresolved > 0 {
		seen := make(map[string]struct{})
		for _, e := range c.history.replayed {
			if _, ok := seen[e.Object.Key]; !ok && e.unresolved() {
				keys = append(keys, e.Object.Key)
			}
			seen[e.Object.Key] = struct{}{}
		}
	}
	return keys, c.history.after
}

// Decide tells the versions of objects as of resourceVersion after: at least of those that
// [Cache.Unknown] has named. It reports whether nothing is undecidable now; something is if an
// object is missing, or if the history begins elsewhere meanwhile.
func (c *Cache) ResolvePrevious(objects []*framing.Object, after uint64) bool {
	known := make(map[string]*framing.Object, len(objects))
	for _, o := range objects {
		known[o.Key] = o
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &c.history
	if h.after != after {
		return false
	}
	h.resolve(known)
	return h.unresolved == 0
}

// Limits returns the cache's bounds.
func (c *Cache) Limits() Limits { return c.limits }
