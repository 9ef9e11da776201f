package fanout

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// Reason is why a subscription ended. It is the log field and the metric label.
type Reason string

// The reasons. Each subscription ends for exactly one.
const (
	TimedOut   Reason = "timeout"        // its timeoutSeconds passed
	Gone       Reason = "client_gone"    // the client closed the connection, or it broke
	Evicted    Reason = "evicted"        // it fell behind by more than its bounds
	Expired    Reason = "expired"        // the history dropped events that it had not read yet
	ShutDown   Reason = "shutdown"       // the process ends
	Aged       Reason = "connection_age" // its connection has reached the maximum age
	Backwards  Reason = "backwards"      // upstream went back in time
	Reencoded  Reason = "reencoded"      // upstream writes the same objects in other bytes
	LaneClosed Reason = "lane_stopped"   // the resource is no longer served
	Redefined  Reason = "redefined"      // the custom resource's definition changed, or another server answers for it
	Revoked    Reason = "revoked"        // the client may no longer read
)

// Reasons lists all reasons.
var Reasons = []Reason{TimedOut, Gone, Evicted, Expired, ShutDown, Aged, Backwards, Reencoded, LaneClosed, Redefined, Revoked}

// Ending is how a subscription ends.
type Ending struct {
	Reason Reason
	// Graceful first sends the client everything that there is for it and then, if the client takes
	// bookmarks, a bookmark. With the bookmark's resourceVersion the client can resume at any
	// server. Until that is done, an ending that is not graceful may replace this one.
	Graceful bool
	// Last is written before the end of the stream, if the client can still take it: an ERROR
	// event, or nothing.
	Last framing.Frame
}

// Start says where a subscription begins.
type Start uint8

const (
	// FromNow begins with the next change.
	FromNow Start = iota
	// FromSnapshot begins with the current objects as ADDED events.
	FromSnapshot
	// FromVersion begins after Request.ResourceVersion.
	FromVersion
)

// Request is what a subscription asks for.
type Request struct {
	Filter *Filter
	Start  Start
	// ResourceVersion is where FromVersion begins. It may be in the future. Then nothing up to and
	// including it is sent.
	ResourceVersion uint64
	// Bookmarks asks for a bookmark each minute. With FromSnapshot and EndBookmark, it also asks
	// for the bookmark that ends the initial events.
	Bookmarks, EndBookmark bool
	// Gzip asks for one gzip member (RFC 1952) instead of plain events. The Sink writes the
	// beginning of the member, [framing.GzipStart]. The Flusher writes its end before a proper end
	// of the stream.
	Gzip bool
	// Timeout ends the subscription, as [TimedOut]. It must be positive.
	Timeout time.Duration
	// Aging says that the timeout is that of the client's connection. It ends the subscription as
	// [Aged], gracefully.
	Aging bool
	// Proof is what a FromSnapshot or FromNow subscription must be as new as. The zero Proof
	// demands nothing.
	Proof Proof
}

// Proof says that the cache's state was at one instant the collection's state as of a
// resourceVersion. What the cache held at resourceVersion At of epoch Epoch is what upstream held
// as of AsOf. AsOf may be later than At, because there were no changes in between or they undid
// each other.
type Proof struct {
	Epoch    uint64
	At, AsOf uint64
}

// holds reports whether the proof is about the cache as it is now, or about a state that the cache
// has passed.
func (p Proof) holds(epoch, progress uint64) bool {
	return p.AsOf <= progress || p.Epoch == epoch && p.At == progress
}

// Sink is what a subscription is written to. The flusher calls its methods one at a time.
type Sink interface {
	// Write takes a batch of shared, immutable slices. It writes as much as it can without waiting
	// and keeps the rest. blocked reports that there is a rest. Write must not keep the outer
	// slice.
	Write(batch [][]byte) (blocked bool, err error)
	// Drain writes the rest as the client takes it, and calls done once when the rest has been
	// written or can't be. Drain must not wait. done may be called from any goroutine, and has no
	// effect after End.
	Drain(done func(error))
	// End is called once, as the last call. complete means that everything before was written, and
	// that the stream should end properly. End must not wait. It may come while a rest is being
	// drained.
	End(reason Reason, complete bool)
}

// Subscription is one watch's place in a lane's changes: a prelude, and then a place in its group's
// list. It costs no goroutine and no timer.
type Subscription struct {
	// Immutable after Subscribe.
	cache     *Cache
	group     *group
	bookmarks bool
	aging     bool // at its deadline it ends as Aged
	deadline  time.Time
	skip      uint64 // changes up to and including this resourceVersion are not sent

	// ending is set by the first goroutine that ends the subscription: see endAs.
	ending atomic.Pointer[Ending]
	shard  atomic.Pointer[shard] // set by Flusher.Start

	// Owned by the shard from Flusher.Start on.
	sink         Sink
	prelude      prelude
	cursor       *node       // consumed last
	gzip         *gzipMember // nil for a client that does not take gzip
	startVersion uint64      // the resourceVersion after which its live changes begin; moves on during a replay
	lastVersion  uint64      // the resourceVersion of the last live change; 0 before the first
	nextBookmark time.Time
	blocked      bool          // the sink is draining
	queued       bool          // in shard.catchingUp
	lastSent     bool          // the sink has been given what ends the stream
	inPart       int           // index in its part's members
	inShard      int           // index in the shard's subscriptions, plus 1; 0 = not yet owned
	endingSince  time.Time     // when a sweep first found it ending
	events       uint64        // given to the sink
	bytes        uint64        // in them, compressed if the client takes gzip
	parkedAt     MonotonicTime // when it was last blocked
	parks        uint32        // how often it was
}

// prelude is what a subscription sends before its group's list.
type prelude struct {
	snapshot    *Snapshot // initial events; nil when done
	after       string    // key of the last one sent
	endBookmark bool      // sent after them
	endVersion  uint64    // the resourceVersion of the end bookmark

	replay bool   // changes of the history after from, up to the number end
	from   uint64 // the resourceVersion of the last one
	end    uint64
}

// any reports whether anything is left of it.
func (p *prelude) any() bool { return p.snapshot != nil || p.replay }

// Subscribe begins a subscription. It covers all changes from now on, once it is given to
// [Flusher.Start]. The caller must do that, or call Cancel.
//
// It returns [ErrExpired], [ErrRelistGap], [ErrPreviousUnknown], [ErrNotFresh], [ErrCostly] or
// [ErrClosed].
func (c *Cache) Subscribe(r Request) (*Subscription, error) {
	now := time.Now()
	s := &Subscription{
		cache:     c,
		bookmarks: r.Bookmarks,
		aging:     r.Aging,
		deadline:  now.Add(r.Timeout),
	}
	s.scheduleBookmark(now)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return nil, ErrClosed
	}
	progress := c.Progress()
	if progress == 0 || !r.Proof.holds(c.epoch, progress) {
		return nil, ErrNotFresh
	}
	if err := c.placeLocked(s, r, progress); err != nil {
		return nil, err
	}
	if s.group = c.groupLocked(r.Filter); s.group == nil {
		return nil, ErrCostly
	}
	c.joinLocked(s, r.Gzip)
	if s.skip > progress {
		c.noteAheadLocked(s, r)
	}
	return s, nil
}

// placeLocked sets where a subscription begins, and its prelude.
func (c *Cache) placeLocked(s *Subscription, r Request, progress uint64) error {
	s.startVersion = max(progress, r.Proof.AsOf)
	switch r.Start {
	case FromNow:
		s.skip = r.Proof.AsOf
	case FromSnapshot:
		snapshot := c.snapshotLocked()
		s.skip = r.Proof.AsOf
		s.prelude = prelude{snapshot: &snapshot, endBookmark: r.EndBookmark && r.Bookmarks, endVersion: s.startVersion}
	case FromVersion:
		s.startVersion = r.ResourceVersion
		switch {
		case r.ResourceVersion >= progress:
			s.skip = r.ResourceVersion
		case c.history.inGap(r.ResourceVersion):
			return fmt.Errorf("%w: %d", ErrRelistGap, r.ResourceVersion)
		case r.ResourceVersion < c.history.after:
			return fmt.Errorf("%w: %d, oldest %d", ErrExpired, r.ResourceVersion, c.history.after)
		case c.history.unresolvedFor(r.Filter, r.ResourceVersion):
			return ErrPreviousUnknown
		default:
			s.prelude = prelude{replay: true, from: r.ResourceVersion, end: c.history.next}
		}
	}
	return nil
}

// joinLocked makes a subscription a member of its group, from the group's next frame on.
func (c *Cache) joinLocked(s *Subscription, gzip bool) {
	s.group.members++
	if gzip {
		s.gzip = &gzipMember{}
		s.group.gzip++
	}
	c.members++
	s.cursor = s.group.tail.Load()
}

// noteAheadLocked notes a subscription that begins ahead of the cache.
func (c *Cache) noteAheadLocked(s *Subscription, r Request) {
	if c.ahead == nil {
		c.ahead = make(map[*Subscription]uint64)
	}
	if r.Start == FromVersion {
		c.ahead[s] = 0
		return
	}
	c.ahead[s] = r.Proof.At
	c.noteProofLocked(r.Proof)
}

// groupLocked returns the group of a filter, which may be a new one; nil if the filter would cost
// too much.
func (c *Cache) groupLocked(f *Filter) *group {
	if g := c.groups[f.key]; g != nil {
		return g
	}
	g := newGroup(f, c.flusher.size())
	if f.cost > 0 && c.filters+f.size > maxFilterBytes || !c.index.add(g) {
		costlyFilters.Inc()
		return nil
	}
	c.groups[f.key] = g
	c.filters += f.size
	filterBytes.Add(float64(f.size))
	return g
}

// maxFilterBytes bounds the memory of a cache's filters, except those that cost nothing. Clients
// usually need a few hundred bytes each. A thousand of the largest filters that the proxy accepts
// fit.
const maxFilterBytes = 64 << 20

// dropLocked removes a group.
func (c *Cache) dropLocked(g *group) {
	c.index.remove(g)
	c.filters -= g.filter.size
	filterBytes.Add(-float64(g.filter.size))
}

// leave takes a subscription that has ended out of its group.
func (c *Cache) leave(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.group.members--
	if s.gzip != nil {
		s.group.gzip--
	}
	c.members--
	delete(c.ahead, s)
	if key := s.group.filter.key; s.group.members == 0 && c.groups[key] == s.group {
		delete(c.groups, key)
		c.dropLocked(s.group)
	}
}

// Cancel gives up a subscription that was never started.
func (s *Subscription) Cancel() { s.cache.leave(s) }

// End ends the subscription. The first call decides how, or the first with an ending that is not
// graceful. It may be called from any goroutine. The flusher tells the sink soon after, or as soon
// as the subscription is started.
func (s *Subscription) End(e Ending) {
	if s.endAs(&e) {
		if sh := s.shard.Load(); sh != nil {
			sh.post(s)
		}
	}
}

// endAs sets how the subscription ends, unless that is decided, and reports whether it did. A
// graceful ending is not decided until everything has been sent.
func (s *Subscription) endAs(e *Ending) bool {
	for {
		before := s.ending.Load()
		if before != nil && (!before.Graceful || e.Graceful) {
			return false
		}
		if s.ending.CompareAndSwap(before, e) {
			return true
		}
	}
}

// ends reports whether it is decided how the subscription ends. Then it is sent nothing more except
// the end.
func (s *Subscription) ends() bool {
	e := s.ending.Load()
	return e != nil && !e.Graceful
}

// timedOut returns how the subscription ends at its deadline.
func (s *Subscription) timedOut() *Ending {
	if s.aging {
		return &Ending{Reason: Aged, Graceful: true}
	}
	return &Ending{Reason: TimedOut}
}

const (
	// bookmarkEvery and bookmarkBefore are kube-apiserver's: each minute, and two seconds before
	// the timeout (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go, nextBookmarkTime).
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
	bookmarkRetry  = time.Second // kube-apiserver's timer takes 1 to 1.25 s
)

func (s *Subscription) scheduleBookmark(now time.Time) {
	s.nextBookmark = now.Add(bookmarkEvery)
	if last := s.deadline.Add(-bookmarkBefore); last.After(now) && last.Before(s.nextBookmark) {
		s.nextBookmark = last
	}
}

// batch collects what is written to one client at once. A shard reuses it.
type batch struct {
	slices [][]byte
	bytes  int
	plain  int // bytes of the compressed slices before compression
	frames int
	oldest MonotonicTime // change.Received of the first live frame; 0 for none

	// run is the part of the prelude that has not been compressed and added yet. runBytes is its
	// size.
	run      []framing.Frame
	runBytes int
}

const (
	// maxBatchFrames and maxBatchBytes bound one write, so that the clients of a shard take turns.
	// 512 frames of at most two slices are the most that a writev takes (IOV_MAX is 1,024).
	maxBatchFrames = 512
	maxBatchBytes  = 256 << 10
	// maxBatchPlain bounds the bytes to compress for one write: each MiB takes 2 to 6 ms.
	maxBatchPlain = 1 << 20
)

func (b *batch) reset() {
	clear(b.slices)
	clear(b.run)
	*b = batch{slices: b.slices[:0], run: b.run[:0]}
}

func (b *batch) add(f framing.Frame) {
	if len(f.Head) > 0 {
		b.slices = append(b.slices, f.Head)
	}
	b.slices = append(b.slices, f.Body)
	b.bytes += f.Len()
	b.frames++
}

func (b *batch) addSlice(p []byte) {
	b.slices = append(b.slices, p)
	b.bytes += len(p)
}

// addChunk adds compressed frames.
func (b *batch) addChunk(c framing.GzipChunk, frames int) {
	b.addSlice(c.Bytes())
	b.plain += int(c.Plain.Len())
	b.frames += frames
}

func (b *batch) full() bool {
	return b.frames >= maxBatchFrames || b.bytes >= maxBatchBytes || b.plain >= maxBatchPlain
}

// add adds a frame that only this client is sent.
func (s *Subscription) add(b *batch, f framing.Frame) {
	if s.gzip == nil {
		b.add(f)
		return
	}
	c := framing.GzipStored(f)
	s.gzip.add(s.cursor, c)
	b.addChunk(c, 1)
}

// addRun adds a frame of the prelude. With gzip, the frame may wait for the others of its run: see
// endRun.
func (s *Subscription) addRun(b *batch, f framing.Frame, rv uint64) {
	if s.gzip == nil {
		b.add(f)
		return
	}
	b.run = append(b.run, f)
	b.runBytes += f.Len()
	if endsCompressedRun(b.runBytes, rv) {
		s.endRun(b)
	}
}

// endRun adds the frames that wait.
func (s *Subscription) endRun(b *batch) {
	if len(b.run) == 0 {
		return
	}
	c := s.cache.flusher.runs.get(b.run)
	s.gzip.add(s.cursor, c)
	b.addChunk(c, len(b.run))
	clear(b.run)
	b.run, b.runBytes = b.run[:0], 0
}

// release drops what an ending subscription will not read.
func (s *Subscription) release() {
	if s.gzip != nil {
		s.gzip.leave(s.cursor)
	}
	s.cursor, s.prelude = nil, prelude{}
}

// fill adds the next frames to b, as many as fit, and moves the subscription's place past them.
// more reports whether there are others. ok is false if the history has forgotten some.
func (s *Subscription) fill(b *batch, scratch []*change) (more, ok bool) {
	if s.prelude.snapshot != nil && !s.fillSnapshot(b) {
		return true, true
	}
	if s.prelude.replay {
		if done, ok := s.fillReplay(b, scratch); !ok || !done {
			return true, ok
		}
	}
	for !b.full() {
		n := s.cursor.next.Load()
		if n == nil {
			return false, true
		}
		prev := s.cursor
		s.cursor = n
		if n.resourceVersion <= s.skip { // nothing of the list has been sent yet
			continue
		}
		if b.oldest == 0 {
			b.oldest = n.received
		}
		if s.gzip == nil {
			b.add(n.frame)
		} else {
			b.addChunk(s.gzip.next(prev, n), 1)
		}
		s.lastVersion = n.resourceVersion
	}
	return s.cursor.next.Load() != nil, true
}

// fillSnapshot adds initial events and reports whether those were the last.
func (s *Subscription) fillSnapshot(b *batch) (done bool) {
	done = true
	budget := newSearchBudget()
	s.prelude.snapshot.ascend(s.group.filter, s.prelude.after, func(o *framing.Object, selected bool) bool {
		if b.full() || budget.spent() {
			done = false
			return false
		}
		budget.spend(s.group.filter.cost)
		s.prelude.after = o.Key
		if selected {
			s.addRun(b, o.Frame(framing.Added), o.ResourceVersion)
		}
		return true
	})
	s.endRun(b)
	if !done {
		return false
	}
	s.prelude.snapshot = nil
	if form := s.cache.bookmarkForm.Load(); s.prelude.endBookmark && form != nil && form.HasEnd() {
		s.add(b, form.Frame(s.prelude.endVersion, true))
	}
	return true
}

// fillReplay adds changes from the history and reports whether those were the last. It never splits
// changes with the same resourceVersion.
func (s *Subscription) fillReplay(b *batch, scratch []*change) (done, ok bool) {
	defer s.endRun(b)
	budget := newSearchBudget()
	over := func() bool { return b.full() || budget.spent() }
	for !over() {
		events, ok := s.cache.replay(scratch[:0], s.prelude.from, s.prelude.end)
		if !ok {
			return false, false
		}
		if len(events) == 0 {
			s.prelude.replay = false
			return true, true
		}
		for _, e := range events {
			if e.ResourceVersion != s.prelude.from && over() {
				break // it is read again next time
			}
			budget.spend(2 * s.group.filter.cost) // the version before, and this one
			s.prelude.from = e.ResourceVersion
			if f, ok := e.frameFor(s.group.filter); ok {
				s.addRun(b, f, e.Object.ResourceVersion)
				s.startVersion = e.sentVersion()
			}
		}
		clear(events)
	}
	return false, true
}

// replayStep is how many changes are read from the history at once.
const replayStep = 64

func (c *Cache) replay(dst []*change, from, end uint64) ([]*change, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.history.read(dst, from, end, replayStep)
}

// bookmark adds a bookmark, if one is due. All changes up to resourceVersion progress must have
// been sent. A subscription that is still where it began gets none, because the bookmark would say
// nothing new.
func (s *Subscription) bookmark(b *batch, progress uint64, now time.Time) {
	if !s.bookmarks || now.Before(s.nextBookmark) {
		return
	}
	form := s.cache.bookmarkForm.Load()
	if progress <= s.startVersion || progress < s.lastVersion || form == nil || !form.HasPlain() {
		s.nextBookmark = now.Add(bookmarkRetry)
		return
	}
	s.add(b, form.Frame(progress, false))
	s.scheduleBookmark(now)
}

// lastBookmark adds the bookmark before a graceful end, for the client to resume from. All changes
// up to resourceVersion progress must have been sent. Two kinds of clients get none, because
// progress is older than what they know: a client that asked for changes after a resourceVersion in
// the future, and one that has been sent a change ahead of progress, which may be one of several
// that a list has shown.
func (s *Subscription) lastBookmark(b *batch, progress uint64) {
	form := s.cache.bookmarkForm.Load()
	if s.bookmarks && progress >= s.startVersion && progress >= s.lastVersion && form != nil && form.HasPlain() {
		s.add(b, form.Frame(progress, false))
	}
}

// behind returns how far the subscription is behind its group's list.
func (s *Subscription) behind() (frames, bytes uint64) {
	tail := s.group.tail.Load()
	return tail.frames - s.cursor.frames, tail.bytes - s.cursor.bytes
}

// pastBounds reports whether the subscription is behind by more than times its bounds.
func (s *Subscription) pastBounds(times uint64) bool {
	frames, bytes := s.behind()
	limits := &s.cache.limits
	return frames > times*uint64(limits.ClientFrames) || bytes > times*uint64(limits.ClientBytes)
}
