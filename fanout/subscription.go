package fanout

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/framing"
)

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
	// Bookmarks asks for a bookmark every [Limits].BookmarkEvery. With FromSnapshot and
	// EndBookmark, it also asks for the bookmark that ends the initial events.
	Bookmarks, EndBookmark bool
	// Gzip asks for one gzip member (RFC 1952) instead of plain events. The Sink writes the
	// beginning of the member, [framing.GzipStart]. The Flusher writes its end before a proper end
	// of the stream.
	Gzip bool
	// Variant is the form of the objects, and the account of the subscription; nil for Whole.
	Variant *Variant
	// Timeout ends the subscription, as [TimedOut]. It must be positive.
	Timeout time.Duration
	// Aging says that the timeout is that of the client's connection. It ends the subscription as
	// [Aged], gracefully.
	Aging bool
	// Beside says that no client is sent what the subscription gets. It counts among no watches.
	Beside bool
	// MaxAge is how long ago the changes may have arrived that FromVersion begins with. 0 is no
	// limit.
	MaxAge time.Duration
	// Proof is what a FromSnapshot or FromNow subscription must be as new as. The zero Proof
	// demands nothing.
	Proof Proof
	// Into is the memory for the subscription, within something of the caller's that lasts as long;
	// nil allocates it.
	Into *Subscription
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
// list. It costs no goroutine and no timer. There may be very many, most of them idle, so its size
// is tested (TestSubscriptionSize).
type Subscription struct {
	// Immutable after Subscribe.
	group    *group
	deadline MonotonicTime
	skipTo   uint64 // changes up to and including this resourceVersion are not sent

	// ending is set by the first goroutine that ends the subscription: see endAs.
	ending atomic.Pointer[Ending]
	shard  atomic.Pointer[shard] // set by Flusher.Start

	// Owned by the shard from Flusher.Start on.
	sink         Sink
	carrier      *Carrier      // of sink; nil for none
	prelude      *prelude      // nil when done
	cursor       *node         // consumed last; nil once it is released
	gzip         *gzipMember   // nil for a client that does not take gzip
	startVersion uint64        // the resourceVersion after which its live changes begin; moves on during a replay
	lastVersion  uint64        // the resourceVersion of the last live change; 0 before the first
	next         MonotonicTime // when the next bookmark is due, or, if expiring, when it is cut off
	events       uint64        // given to the sink
	bytes        uint64        // in them, compressed if the client takes gzip
	parkedAt     MonotonicTime // when it was last blocked
	writes       uint32        // to the sink
	inPart       int32         // index in its part's members
	inShard      int32         // index in the shard's subscriptions, plus 1; 0 = not yet owned
	parks        uint16        // how often the sink was blocked, at least

	bookmarks bool // immutable, as aging is
	aging     bool // at its deadline it ends as Aged
	beside    bool // it counts among no watches; immutable
	blocked   bool // the sink is draining
	queued    bool // in shard.behind or shard.beginning
	lastSent  bool // the sink has been given what ends the stream
	unopened  bool // its first event, which will have column definitions, is still to come
	expiring  bool // a sweep has found it ending
	kept      bool // the sink has been told of memory that it keeps
}

// Subscribe begins a subscription. It covers all changes from now on, once it is given to
// [Flusher.Start]. The caller must do that, or call Cancel.
//
// It returns [ErrExpired], [ErrRelistGap], [ErrOutdated], [ErrPreviousUnknown], [ErrNotFresh], [ErrCostly],
// [ErrClosed], [ErrEventsOnly] or [ErrStale].
func (c *Cache) Subscribe(r Request) (*Subscription, error) {
	now := MonotonicNow()
	s := r.Into
	if s == nil {
		s = new(Subscription)
	}
	*s = Subscription{
		bookmarks: r.Bookmarks,
		aging:     r.Aging,
		beside:    r.Beside,
		deadline:  now + MonotonicTime(r.Timeout),
		unopened:  c.eventsOnly,
	}
	s.scheduleBookmark(c.limits.BookmarkEvery, now)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return nil, ErrClosed
	}
	progress := c.Progress()
	if progress == 0 || !r.Proof.holds(c.epoch, progress) {
		return nil, ErrNotFresh
	}
	if c.eventsOnly && (r.Start == FromSnapshot || !r.Filter.fixed) {
		return nil, ErrEventsOnly
	}
	if err := c.placeLocked(s, r, progress); err != nil {
		return nil, err
	}
	if s.group = c.groupLocked(r); s.group == nil {
		return nil, ErrCostly
	}
	c.joinLocked(s, r.Gzip)
	if s.skipTo > progress {
		c.noteAheadLocked(s, r)
	}
	return s, nil
}

// placeLocked sets where a subscription begins, and its prelude.
func (c *Cache) placeLocked(s *Subscription, r Request, progress uint64) error {
	s.startVersion = max(progress, r.Proof.AsOf)
	switch r.Start {
	case FromNow:
		s.skipTo = r.Proof.AsOf
	case FromSnapshot:
		s.skipTo = r.Proof.AsOf
		s.prelude = &prelude{
			initial:     true,
			since:       MonotonicNow(),
			base:        c.givenUp.Load(),
			search:      &search{in: c.snapshotLocked().instant, filter: r.Filter},
			endBookmark: r.EndBookmark && r.Bookmarks,
		}
	case FromVersion:
		s.startVersion = r.ResourceVersion
		switch {
		case r.Filter.Outdated(r.ResourceVersion):
			return fmt.Errorf("%w: %d", ErrOutdated, r.ResourceVersion)
		case r.ResourceVersion >= progress:
			s.skipTo = r.ResourceVersion
		case c.history.inGap(r.ResourceVersion):
			return fmt.Errorf("%w: %d", ErrRelistGap, r.ResourceVersion)
		case r.ResourceVersion < c.history.after:
			return fmt.Errorf("%w: %d, oldest %d", ErrExpired, r.ResourceVersion, c.history.after)
		case c.history.unresolvedFor(r.Filter, r.ResourceVersion):
			return ErrPreviousUnknown
		default:
			if err := c.tooOldLocked(r); err != nil {
				return err
			}
			s.prelude = &prelude{next: c.history.seek(r.ResourceVersion), end: c.history.next}
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
	if s.beside {
		s.group.beside++
	} else {
		c.members++
		if s.group.variant.Trim != framing.Lean {
			c.packing, c.wholeAt = nil, MonotonicNow()
		}
	}
	s.cursor = s.group.tail.Load()
}

// leave takes a subscription that has ended out of its group.
func (c *Cache) leave(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.group.members--
	if s.gzip != nil {
		s.group.gzip--
	}
	if s.beside {
		s.group.beside--
	} else {
		c.members--
	}
	delete(c.ahead, s)
	if key := s.group.key(); s.group.members == 0 && c.groups[key] == s.group {
		delete(c.groups, key)
		c.dropLocked(s.group)
	}
}

// Lean reports whether the subscription asked for objects without metadata.managedFields and no
// others. It may be called from any goroutine.
func (s *Subscription) Lean() bool { return s.group != nil && s.group.variant.Trim == framing.Lean }

// Bookmarks reports whether the client takes bookmarks. It may be called from any goroutine.
func (s *Subscription) Bookmarks() bool { return s.bookmarks }

// count adds n to the gauges of subscriptions.
func (s *Subscription) count(n float64) {
	if s.beside {
		return
	}
	m := s.group.cache.flusher.metrics
	m.subscriptions.Add(n)
	if s.Lean() {
		m.lean.Add(n)
	}
	if a := s.group.variant.Account; a != nil {
		a.Subscriptions.Add(n)
	}
}

// countParked adds n to the gauge of those whose clients do not read.
func (s *Subscription) countParked(n float64) {
	if !s.beside {
		s.group.cache.flusher.metrics.parked.Add(n)
	}
}

// Cancel gives up a subscription that was never started.
func (s *Subscription) Cancel() { s.group.cache.leave(s) }

// release drops what an ending subscription will not read.
func (s *Subscription) release() {
	if s.gzip != nil {
		s.gzip.leave(s.cursor)
	}
	s.cursor, s.prelude = nil, nil
}

// fill adds the next frames to b, as many as fit, and moves the subscription's place past them. It
// stops before a live change after resourceVersion upTo. more reports whether there are others
// before that. ok is false if the history has forgotten some.
func (s *Subscription) fill(b *batch, scratch []numbered, upTo uint64) (more, ok bool) {
	if p := s.prelude; p != nil {
		done, ok := false, true
		if p.initial {
			done = s.fillSnapshot(b)
		} else {
			done, ok = s.fillReplay(b, scratch)
		}
		if !done {
			return true, ok
		}
		s.prelude = nil
	}
	for !b.full() {
		n := s.cursor.next.Load()
		if n == nil || n.resourceVersion > upTo {
			return false, true
		}
		prev := s.cursor
		s.cursor = n
		if n.resourceVersion <= s.skipTo { // nothing of the list has been sent yet
			continue
		}
		if b.oldest == 0 {
			b.oldest = n.received
		}
		if f, own := s.opened(n.frame); own {
			s.add(b, f)
		} else if s.gzip == nil {
			b.add(f)
		} else {
			b.addChunk(s.gzip.next(prev, n, s.group.cache.flusher.metrics), 1)
		}
		s.lastVersion = n.resourceVersion
	}
	return s.cursor.next.Load() != nil, true
}

// behind returns how far the subscription is behind its group's list.
func (s *Subscription) behind() (frames, bytes uint64) {
	tail := s.group.tail.Load()
	return tail.frames - s.cursor.frames, tail.bytes - s.cursor.bytes
}

// pastBounds reports whether the subscription is behind by more than times its bounds.
func (s *Subscription) pastBounds(times uint64) bool {
	frames, bytes := s.behind()
	limits := &s.group.cache.limits
	return frames > times*uint64(limits.ClientFrames) || bytes > times*uint64(limits.ClientBytes)
}
