package fanout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/watchfan/watchfan/framing"
)

// Limits are the bounds of a cache and of its subscriptions.
type Limits struct {
	// HistoryEvents and HistoryBytes bound the history, which clients resume from.
	HistoryEvents int
	HistoryBytes  int64
	// ClientFrames and ClientBytes bound how far a subscription may fall behind while its client
	// does not read. Beyond either it ends as [Evicted]. While the client reads, the bounds are 8
	// times as wide.
	ClientFrames int
	ClientBytes  int64
	// BookmarkEvery is the time between two bookmarks of a subscription. 0 is a minute.
	BookmarkEvery time.Duration
}

// Errors of a cache.
var (
	// ErrExpired: the history does not reach back to the requested resourceVersion, no longer or
	// not yet. The caller replays the missing changes with [Cache.Extend], or asks upstream.
	ErrExpired = errors.New("resourceVersion is older than the history")
	// ErrRelistGap is ErrExpired for a resourceVersion in a relist gap. The client may have seen
	// changes elsewhere that are in no event here. The caller asks upstream, which may still have
	// them, or answers 410 Gone.
	ErrRelistGap = fmt.Errorf("a relist skipped it: %w", ErrExpired)
	// ErrPreviousUnknown: what a client with a selector would get depends on versions from before a
	// replay. The caller finds them ([Cache.ResolvePrevious]) or asks upstream.
	ErrPreviousUnknown = errors.New("history does not say which objects matched before")
	// ErrNotFresh: the cache is not, or no longer, in the state that a proof is about. The caller
	// proves it again.
	ErrNotFresh = errors.New("cache is not known to be as new as requested")
	// ErrCostly: together with all other filters, the filter would make the writer do too much for
	// each change, or take too much memory. The caller asks upstream.
	ErrCostly = errors.New("filters cost too much")
	// ErrOutdated: what a client has seen as of the requested resourceVersion may not be what its view
	// had then: the view or a namespace has changed since. The client must list again.
	ErrOutdated = errors.New("the view has changed since")
	// ErrClosed: the cache has ended.
	ErrClosed = errors.New("cache is closed")
	// ErrReencoded: a list shows an object in other bytes at the resourceVersion that the cache
	// holds. The caller resets the cache.
	ErrReencoded = errors.New("other bytes at the same resourceVersion")
	// ErrBackwards: upstream went back in time, or repeated itself. The caller lists again.
	ErrBackwards = errors.New("resourceVersion did not increase")
)

// Cache is the watch cache of one lane: the snapshot of its objects, the history of its recent
// changes, and the subscriptions that follow it.
//
// Apply, Replace and Reset are called by one writer, the lane's reflector. All other methods may be
// called from any goroutine. The mutex is never held during a write to a client.
type Cache struct {
	limits     Limits
	flusher    *Flusher
	eventsOnly bool // see NewEventsOnly
	apart      bool // see SetApart
	lends      bool // owned by the writer: it is in ApplyLast

	// progress is the resourceVersion up to which every change has been applied and appended to the
	// groups. It is stored after those appends. So a goroutine that loads progress first, and then
	// reads a group to its end, has read everything up to progress.
	progress atomic.Uint64
	told     atomic.Int64 // see Told
	// bookmarkForm is how bookmarks are written; nil until known.
	bookmarkForm atomic.Pointer[framing.BookmarkForm]
	// columns are what the first event of each subscription has more; nil until known.
	columns atomic.Pointer[framing.Columns]

	delivered delivered // see Delivered

	// givenUp counts the bytes of all versions that the collection has held and holds no longer.
	givenUp atomic.Uint64

	// wholeReads counts the objects of lists that were not lean, and falls with time.
	wholeReads atomic.Int64

	mu          sync.Mutex
	objects     collection
	shared      *instant       // clone of objects, for snapshots; nil until needed
	pasts       [8]past        // that were last asked for
	bytes       int64          // of the objects
	forms       *framing.Forms // of objects here and in the history
	history     history
	groups      map[groupKey]*group
	index       index
	filtersSize int                      // bytes in the groups' filters
	viewed      bool                     // there has been a group whose view selects objects
	packing     *framing.Packing         // of new versions; nil to hold them as they come
	hasPacked   bool                     // objects may be packed: there has been a packing
	wholeAt     MonotonicTime            // when somebody last wanted whole objects: see choosePacking
	spaces      spaces                   // the namespaces that views select by label
	ahead       map[*Subscription]uint64 // that began ahead of progress; the value is Proof.At, 0 without a proof
	members     int                      // of all groups, that are sent to clients
	changed     chan struct{}            // closed and replaced when progress moves; nil if nobody waits
	epoch       uint64                   // number of calls of Replace and Reset
	latestProof Proof                    // the proof with the latest AsOf that a client has seen
	shownProofs []Proof                  // the latest proofs of snapshots with a resourceVersion ahead of progress
	seeded      uint64                   // see Seeded
	shown       uint64                   // the latest resourceVersion ahead of progress that a client has seen
	closed      *Ending

	// See type secondaryIndex. The others have locks of their own.
	indexer *Indexer      // set before the cache is used; nil keeps no indexes
	lineage uint64        // how often objects began anew; guarded by mu
	indexed atomic.Uint64 // number of indexes built since NewCache
	demand  indexDemand
}

// NewCache returns an empty cache whose subscriptions are served by flusher. Nothing can be read
// from it before the first Replace.
func NewCache(limits Limits, flusher *Flusher) *Cache {
	return &Cache{
		limits:  limits,
		flusher: flusher,
		objects: newCollection(),
		forms:   new(framing.Forms),
		history: newHistory(limits),
		groups:  make(map[groupKey]*group),
		wholeAt: MonotonicNow(),
		spaces:  spaces{known: &NamespaceLabels{}, bySelector: make(map[string]*Namespaces)},
		ahead:   make(map[*Subscription]uint64),
		demand:  indexDemand{missed: make(map[attribute]int), wanted: make(map[attribute]*Filter)},
	}
}

// Progress returns the resourceVersion up to which the cache holds every change; 0 before the first
// Replace.
func (c *Cache) Progress() uint64 { return c.progress.Load() }

// Told returns when upstream has last said how far it is: with a list, an event, a bookmark or a proof that
// the cache is current. It is zero before the first Replace.
func (c *Cache) Told() MonotonicTime { return MonotonicTime(c.told.Load()) }

// SetBookmarkForm sets how bookmarks are written. No bookmarks are sent before it is called.
func (c *Cache) SetBookmarkForm(f framing.BookmarkForm) {
	if old := c.bookmarkForm.Load(); old != nil && old.HasEnd() && !f.HasEnd() {
		return // a plain bookmark says less
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
	FormBytes       int64  // of the forms in which views, and clients without managedFields, have all of those
	Oldest          uint64 // clients can resume from here on
	Groups          int
	Subscriptions   int
	Indexes         int
	IndexBytes      int64 // of the indexes
}

// Stats returns the cache's figures.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		ResourceVersion: c.Progress(),
		Objects:         c.objects.tree.Len(),
		Bytes:           c.bytes,
		HistoryEvents:   len(c.history.changes),
		HistoryBytes:    c.history.bytes,
		FormBytes:       c.forms.Bytes(),
		Oldest:          c.history.after,
		Groups:          len(c.groups),
		Subscriptions:   c.members,
		Indexes:         len(c.objects.indexes),
		IndexBytes:      c.indexBytesLocked(),
	}
}

// Bytes returns how many bytes of memory the objects, their forms, the history and the indexes take.
func (c *Cache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes + c.forms.Bytes() + c.history.bytes + c.indexBytesLocked()
}

// Delivered returns how much has been written to all subscriptions together since NewCache,
// including initial events and bookmarks.
func (c *Cache) Delivered() (events, bytes uint64) {
	return c.delivered.events.Load(), c.delivered.bytes.Load()
}

// Apply applies one change from the upstream watch and wakes the subscriptions that it concerns. It
// returns [ErrBackwards], and changes nothing, if the change is not newer than what the cache
// holds.
func (c *Cache) Apply(ev framing.Event, received time.Time) error {
	err := c.apply(ev, received)
	c.flusher.metrics.appending.observe(time.Since(received).Seconds())
	return err
}

// ApplyLast is Apply for a writer that has no other change at hand. It sends the change to a few clients
// itself, without a wait.
func (c *Cache) ApplyLast(ev framing.Event, received time.Time) error {
	c.lends = true
	err := c.Apply(ev, received)
	c.lends = false
	for _, sh := range c.flusher.shards {
		sh.lend()
	}
	return err
}

func (c *Cache) apply(ev framing.Event, received time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := ev.Object
	prev, had := c.objects.tree.Get(o)
	if rv := c.Progress(); o.ResourceVersion < rv || o.ResourceVersion == rv && !c.sharesRevision(o, ev.Type) {
		return fmt.Errorf("%w: %d after %d", ErrBackwards, o.ResourceVersion, rv)
	}
	e := &change{
		Type: ev.Type, Object: o, Prev: prev, ResourceVersion: o.ResourceVersion, Received: MonotonicOf(received),
	}
	switch {
	case c.eventsOnly:
		e = passed(ev, received)
	case ev.Type == framing.Deleted && !had:
		c.advanceLocked(o.ResourceVersion)
		return nil // no client has seen the object
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

// sharesRevision reports whether a change with the same resourceVersion as the last change may be
// another change of the same etcd revision, and not a repeat. The expiry of a lease makes such
// changes.
func (c *Cache) sharesRevision(o *framing.Object, t framing.EventType) bool {
	if t != framing.Deleted || c.history.next == c.history.live {
		return false
	}
	last := c.history.at(c.history.next - 1)
	present := c.objects.tree.Has(o) || c.eventsOnly && !c.history.repeats(o)
	return last.Type == framing.Deleted && last.Object.ResourceVersion == o.ResourceVersion && present
}

// commitLocked adds a change to the snapshot, the history and the groups' lists.
func (c *Cache) commitLocked(e *change) {
	if !c.eventsOnly {
		if c.packing != nil {
			e.Object = c.packing.Pack(e.Object)
		}
		e.Object.CountForms(c.forms)
		c.storeLocked(e)
	}
	c.history.append(e)
	var shared gzipFrames
	c.index.concerned(e, func(g *group) {
		f, ok, quiet := e.frameFor(g.filter, g.variant.Trim)
		if ok {
			g.append(f, &shared, e.ResourceVersion, e.Received)
			g.wake(c.lends)
		} else if quiet && g.variant.Account != nil {
			g.variant.Account.Quiet.Add(g.members)
		}
	})
}

func (c *Cache) storeLocked(e *change) {
	prev, cur, ok := e.versions()
	if !ok {
		return
	}
	c.shared = nil
	if prev != nil {
		c.bytes -= int64(prev.Size())
		c.givenUp.Add(uint64(prev.Size()))
	}
	if cur != nil {
		c.bytes += int64(cur.Size())
	}
	c.objects.store(prev, cur)
}

// Advance tells the cache that nothing changed after the last applied change, up to resourceVersion
// rv. It ignores a resourceVersion that is not newer.
func (c *Cache) Advance(rv uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advanceLocked(rv)
}

// AdvanceFrom is Advance if the cache has reached resourceVersion at, and has not been replaced
// since epoch. It reports whether that was so.
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
	if rv < c.Progress() {
		return
	}
	c.told.Store(int64(MonotonicNow()))
	if rv > c.Progress() {
		c.progress.Store(rv)
		c.notifyLocked()
	}
}

func (c *Cache) notifyLocked() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// WaitFor waits until Progress is at least rv.
func (c *Cache) WaitFor(ctx context.Context, rv uint64) error {
	return c.waitUntil(ctx, func(progress uint64) bool { return progress >= rv })
}

// WaitOther waits until Progress is another than rv: the cache has gone on, or was reset to an earlier one.
func (c *Cache) WaitOther(ctx context.Context, rv uint64) error {
	return c.waitUntil(ctx, func(progress uint64) bool { return progress != rv })
}

// waitUntil waits until there reports true for the cache's progress.
func (c *Cache) waitUntil(ctx context.Context, there func(progress uint64) bool) error {
	for {
		c.mu.Lock()
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed, closed := c.changed, c.closed != nil
		c.mu.Unlock()
		switch {
		case there(c.Progress()):
			return nil
		case closed:
			return ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Reset makes the cache hold objects as of resourceVersion rv, whatever it showed before. It drops
// the history and ends every subscription with ending.
func (c *Cache) Reset(objects []*framing.Object, rv uint64, ending Ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endAllLocked(ending)
	c.resetLocked(objects, rv)
	if ending.Reason == Backwards { // otherwise what clients know is as new as it was
		c.shown, c.seeded = 0, 0
		c.spaces.restored(rv)
	}
}

func (c *Cache) resetLocked(objects []*framing.Object, rv uint64) {
	c.epoch++
	c.lineage++
	c.wantAgainLocked()
	c.givenUp.Add(uint64(c.bytes))
	c.objects, c.shared, c.bytes = newCollection(), nil, 0
	c.forms = new(framing.Forms)
	for _, o := range objects {
		c.objects.tree.ReplaceOrInsert(o)
		o.CountForms(c.forms)
		c.bytes += int64(o.Size())
	}
	c.history.reset(rv)
	c.progress.Store(rv)
	c.told.Store(int64(MonotonicNow()))
	c.notifyLocked()
}

// Close ends every subscription with ending and refuses new ones.
func (c *Cache) Close(ending Ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return
	}
	c.closed = &ending
	c.endAllLocked(ending)
	c.notifyLocked()
	c.dropIndexesLocked()
	if c.indexer != nil {
		c.indexer.forget(c)
	}
}

// endAllLocked ends the subscriptions and drops their groups. The next subscription begins a new
// group.
func (c *Cache) endAllLocked(ending Ending) { c.endLocked(ending, func(*group) bool { return true }) }

// endLocked is endAllLocked for the groups that ends reports true for.
func (c *Cache) endLocked(ending Ending, ends func(*group) bool) {
	ending.upTo = c.Progress() // which the lists have
	for key, g := range c.groups {
		if !ends(g) {
			continue
		}
		delete(c.groups, key)
		c.dropLocked(g)
		g.ending.Store(&ending)
		for i := range g.parts {
			if p := g.parts[i].Load(); p != nil {
				p.end(ending)
			}
		}
	}
}

// Snapshot returns the current collection.
func (c *Cache) Snapshot() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshotLocked()
}

func (c *Cache) snapshotLocked() Snapshot {
	if c.shared == nil {
		c.shared = &instant{c.objects.clone(), moment{c.lineage, c.history.next}, c}
	}
	return Snapshot{ResourceVersion: c.Progress(), instant: c.shared}
}

// SnapshotAt returns the collection as it was at resourceVersion rv. ok is false if rv is ahead of
// the cache or older than its history, or if it is in a relist gap. The cost is one step for each
// change after rv, unless another has just asked for the same: the pages of a list do.
func (c *Cache) SnapshotAt(rv uint64) (s Snapshot, ok bool) {
	c.mu.Lock()
	at := rv
	for _, p := range c.shownProofs {
		if p.AsOf == rv && p.Epoch == c.epoch {
			at = p.At
		}
	}
	if at > c.Progress() || at < c.history.after || c.history.inGap(at) {
		c.mu.Unlock()
		return Snapshot{}, false
	}
	if at < c.Progress() {
		if then := c.pastLocked(at); then != nil {
			c.mu.Unlock()
			return Snapshot{ResourceVersion: rv, instant: then}, true
		}
	}
	epoch := c.epoch
	events := slices.Collect(c.history.changesAfter(at))
	var then *instant
	if len(events) == 0 {
		then = c.snapshotLocked().instant
	} else {
		then = &instant{collection: c.objects.clone(), cache: c}
	}
	c.mu.Unlock()

	if slices.ContainsFunc(events, func(e *change) bool { return e.PrevUnknown }) {
		return Snapshot{}, false
	}
	undoAll(events, then.store)
	if len(events) > 0 {
		c.keepPast(epoch, at, then)
	}
	return Snapshot{ResourceVersion: rv, instant: then}, true
}

// past is the collection as it was at a resourceVersion before. Only its readers keep it in memory, but it is
// found until the collector has run.
type past struct {
	epoch, at uint64
	instant   weak.Pointer[instant]
}

// pastLocked returns the collection as it was at a resourceVersion; nil if it is not kept.
func (c *Cache) pastLocked(at uint64) *instant {
	for _, p := range c.pasts {
		if p.at == at && p.epoch == c.epoch {
			return p.instant.Value()
		}
	}
	return nil
}

// keepPast keeps the collection as it was, in the place of the one that was kept first.
func (c *Cache) keepPast(epoch, at uint64, then *instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	copy(c.pasts[1:], c.pasts[:])
	c.pasts[0] = past{epoch, at, weak.Make(then)}
}

// Epoch returns how often the cache has been filled from a list.
func (c *Cache) Epoch() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// Limits returns the cache's bounds.
func (c *Cache) Limits() Limits { return c.limits }
