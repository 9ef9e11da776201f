package fanout

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// shard is one goroutine of a Flusher, and the subscriptions that it owns.
type shard struct {
	index    int
	interval time.Duration   // between two rounds of events
	runs     *compressedRuns // the Flusher's
	wakec    chan struct{}   // one token: the queues are not empty; never closed

	mu          sync.Mutex // guards the queues, which any goroutine fills and run empties
	ready       []*part
	posted      []*Subscription // new, or ending
	drained     []drained
	endings     []partEnding
	inspections []func() // calls from Inspect
	stopped     bool

	// Owned by run.
	subs        []*Subscription
	parts       map[*group]*part
	catchingUp  []*Subscription // have more to send than one batch holds, or have a prelude; in the order of turns
	batch       batch
	due         []*Carrier // written to in this round; those without writes since have been flushed
	dueBytes    int        // what has been written to them since
	scratch     []*change
	firstWrite  time.Time   // when this round first wrote a change; zero if it has not
	lastRound   time.Time   // when events were last served; zero without an interval
	gatherTimer *time.Timer // fires when events may be served again

	// Written by sweep: how far the slowest subscription is behind.
	lagEvents, lagBytes atomic.Uint64

	// Written by run: the [MonotonicTime] of the last round that wrote a change; 0 if none has.
	lastChange atomic.Int64

	// Owned by run.
	now   MonotonicTime // when the round, or the last sweep, began
	tally tally
}

// partEnding asks the shard to end all members of a part.
type partEnding struct {
	part   *part
	ending Ending
}

// drained is a parked subscription whose sink has written its rest, or is broken.
type drained struct {
	subscription *Subscription
	err          error
}

func (sh *shard) wake() {
	select {
	case sh.wakec <- struct{}{}:
	default:
	}
}

// post makes run take a subscription up.
func (sh *shard) post(s *Subscription) {
	sh.mu.Lock()
	sh.posted = append(sh.posted, s)
	sh.mu.Unlock()
	sh.wake()
}

// sweepEvery is the accuracy of timeouts and bookmarks. kube-apiserver's bookmarks have a timer of
// 1 to 1.25 s.
const sweepEvery = 100 * time.Millisecond

// overloadFactor is how many times its bounds a subscription may be behind while its client reads.
// Then this process is the slow part, for example after a relist, and the subscription will catch
// up.
const overloadFactor = 8

// lastBytesTimeout is how long an ending subscription's client may take to accept the last bytes.
const lastBytesTimeout = 5 * time.Second

// run serves the shard's subscriptions until ctx ends.
func (sh *shard) run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	sh.gatherTimer = time.NewTimer(sh.interval)
	defer sh.gatherTimer.Stop()
	var work shardWork
	for sh.await(ctx, tick.C) {
		sh.take(&work)
		for _, answer := range work.inspections {
			answer()
		}
		work.inspections = nil
		sh.firstWrite = time.Time{}
		began := time.Now()
		sh.now = MonotonicOf(began)
		sh.do(&work)
		sh.flushDue()
		sh.catchUp(max(time.Since(began), leastCatchUp))
		sh.flushDue()
		if !sh.firstWrite.IsZero() {
			roundSeconds.observe(time.Since(sh.firstWrite).Seconds())
		}
	}
	sh.stop()
}

// await waits until there may be work, or returns at once if some is left over. It sweeps when that
// is due. It reports false when ctx ends.
func (sh *shard) await(ctx context.Context, tick <-chan time.Time) bool {
	if len(sh.catchingUp) > 0 {
		select {
		case now := <-tick:
			sh.sweep(now)
		case <-ctx.Done():
			return false
		default:
		}
		return true
	}
	select {
	case <-sh.wakec:
	case <-sh.gatherTimer.C:
	case now := <-tick:
		sh.sweep(now)
	case <-ctx.Done():
		return false
	}
	return true
}

// shardWork is what a shard's queues held at the beginning of a round. run owns it, and swaps its
// slices with those of the queues.
type shardWork struct {
	ready       []*part
	posted      []*Subscription
	drained     []drained
	endings     []partEnding
	inspections []func()
}

// take moves the queues into w. During the interval between two rounds, ready parts stay in their
// queue.
func (sh *shard) take(w *shardWork) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !sh.gatheringLocked() {
		w.ready, sh.ready = sh.ready, w.ready[:0]
	}
	w.posted, sh.posted = sh.posted, w.posted[:0]
	w.drained, sh.drained = sh.drained, w.drained[:0]
	w.endings, sh.endings = sh.endings, w.endings[:0]
	w.inspections, sh.inspections = sh.inspections, nil
}

// do serves the subscriptions in w, and clears it.
func (sh *shard) do(w *shardWork) {
	for _, p := range w.ready {
		p.queued.Store(false)
		for i := len(p.members) - 1; i >= 0; i-- {
			sh.serve(p.members[i])
		}
	}
	for _, s := range w.posted {
		sh.takeUp(s)
	}
	for _, d := range w.drained {
		sh.unpark(d)
	}
	for _, e := range w.endings {
		for i := len(e.part.members) - 1; i >= 0; i-- {
			s := e.part.members[i]
			s.endAs(&e.ending)
			sh.takeUp(s)
		}
	}
	clear(w.ready)
	w.ready = w.ready[:0]
	clear(w.posted)
	clear(w.drained)
	clear(w.endings)
}

// leastCatchUp is how long, at least, each round serves subscriptions that have more to send than
// one batch holds.
const leastCatchUp = time.Millisecond

// catchUp serves subscriptions that have more to send than one batch holds, in turn, for the
// duration d. So new events do not wait for thousands of subscriptions that begin with all objects,
// and those get half of a busy shard's time.
func (sh *shard) catchUp(d time.Duration) {
	for until := time.Now().Add(d); len(sh.catchingUp) > 0; {
		s := sh.catchingUp[0]
		sh.catchingUp[0] = nil
		sh.catchingUp = sh.catchingUp[1:]
		s.queued = false
		if s.sink != nil { // it has not ended
			sh.serve(s)
		}
		if !time.Now().Before(until) {
			return
		}
	}
}

// begin serves a subscription, or queues it for its turn if it has a prelude.
func (sh *shard) begin(s *Subscription) {
	if s.blocked || s.queued || s.ending.Load() != nil || s.prelude == nil {
		sh.serve(s)
		return
	}
	s.queued = true
	sh.catchingUp = append(sh.catchingUp, s)
}

// gatheringLocked reports whether the ready parts wait for more events. If they do not, a round
// begins.
func (sh *shard) gatheringLocked() bool {
	if sh.interval == 0 || len(sh.ready) == 0 {
		return false
	}
	now := time.Now()
	if wait := sh.interval - now.Sub(sh.lastRound); wait > 0 {
		sh.gatherTimer.Reset(wait)
		return true
	}
	sh.lastRound = now
	return false
}

// takeUp serves a posted subscription, which is new or is ending.
func (sh *shard) takeUp(s *Subscription) {
	if s.sink == nil {
		return // it has ended already
	}
	if s.inShard == 0 {
		sh.adopt(s)
	}
	sh.begin(s)
}

// adopt makes the shard own a subscription. It publishes the part before the list is first read. So
// a frame that is appended meanwhile is seen here or wakes the part.
func (sh *shard) adopt(s *Subscription) {
	sh.subs = append(sh.subs, s)
	s.inShard = int32(len(sh.subs))
	if s.carrier != nil {
		s.carrier.sinks++
	}
	p := sh.parts[s.group]
	if p == nil {
		p = &part{shard: sh, group: s.group}
		sh.parts[s.group] = p
		s.group.parts[sh.index].Store(p)
	}
	s.inPart = int32(len(p.members))
	p.members = append(p.members, s)
	if e := s.group.ending.Load(); e != nil {
		s.endAs(e)
	}
}

// serve writes one batch to a subscription, if there is anything to write.
func (sh *shard) serve(s *Subscription) {
	if s.blocked || s.queued {
		return
	}
	ending := s.ending.Load()
	if ending != nil && !ending.Graceful {
		sh.sendLast(s, *ending)
		return
	}
	// Loaded before the list is read: see Cache.progress.
	progress := s.group.cache.Progress()
	upTo := uint64(math.MaxUint64)
	if ending != nil {
		if upTo = ending.bound(s, progress); upTo == 0 {
			s.next = sh.now // a sweep looks again
			return
		}
	}
	sh.batch.reset()
	more, ok := s.fill(&sh.batch, sh.scratch, upTo)
	if !ok {
		s.endAs(&Ending{Reason: Expired})
		sh.sendLast(s, *s.ending.Load())
		return
	}
	graceful := ending != nil && !more
	if graceful {
		s.lastBookmark(&sh.batch, upTo)
		s.endAs(&Ending{Reason: ending.Reason, Last: ending.Last})
	} else if !more {
		s.bookmark(&sh.batch, progress, sh.now)
	}
	if sh.batch.frames > 0 && !sh.write(s) {
		return
	}
	if graceful {
		sh.sendLast(s, *s.ending.Load())
	}
	if more {
		s.queued = true
		sh.catchingUp = append(sh.catchingUp, s)
	}
	sh.flushWritten(s)
}

// write writes the batch. It reports whether the subscription can continue at once.
func (sh *shard) write(s *Subscription) bool {
	blocked, err := s.sink.Write(sh.batch.slices)
	if err != nil {
		sh.fail(s, Ending{Reason: Gone})
		return false
	}
	s.events += uint64(sh.batch.frames)
	s.bytes += uint64(sh.batch.bytes)
	sh.tally.note(s, &sh.batch)
	sh.noteDue(s, sh.batch.bytes)
	if sh.batch.oldest != 0 && sh.firstWrite.IsZero() {
		sh.firstWrite = time.Now()
		sh.lastChange.Store(int64(MonotonicOf(sh.firstWrite)))
		deliverySeconds.observe(sh.firstWrite.Sub(sh.batch.oldest.Time()).Seconds())
	}
	if blocked {
		sh.park(s)
	}
	return !blocked
}

// park leaves a subscription aside until its sink has drained.
func (sh *shard) park(s *Subscription) {
	s.blocked = true
	s.parks++
	s.parkedAt = MonotonicNow()
	parks.Inc()
	parked.Inc()
	s.sink.Drain(func(err error) {
		sh.mu.Lock()
		sh.drained = append(sh.drained, drained{s, err})
		sh.mu.Unlock()
		sh.wake()
	})
}

// unpark continues a subscription whose sink has drained, or ends one whose sink is broken.
func (sh *shard) unpark(d drained) {
	s := d.subscription
	if s.sink == nil {
		return // it has ended meanwhile
	}
	s.blocked = false
	parked.Dec()
	if d.err != nil {
		sh.fail(s, Ending{Reason: Gone})
		return
	}
	sh.begin(s)
}

// sweep enforces deadlines and bounds, and sends the bookmarks that are due.
func (sh *shard) sweep(now time.Time) {
	sh.runs.sweep(now)
	var lagEvents, lagBytes uint64
	sh.now = MonotonicOf(now)
	for i := len(sh.subs) - 1; i >= 0; i-- {
		s := sh.subs[i]
		if s.cursor != nil {
			events, bytes := s.behind()
			lagEvents, lagBytes = max(lagEvents, events), max(lagBytes, bytes)
		}
		switch {
		case s.ends():
			if !s.expiring {
				s.expiring, s.next = true, sh.now+MonotonicTime(lastBytesTimeout)
				s.release()
			} else if sh.now > s.next {
				sh.finish(s, *s.ending.Load(), false)
			}
		case sh.now >= s.deadline && s.endAs(s.timedOut()):
			sh.serve(s)
		case s.blocked && s.pastBounds(1) || s.pastBounds(overloadFactor):
			if e, ok := s.sink.(Evictee); ok {
				e.Evicted(s.state())
			}
			s.endAs(&Ending{Reason: Evicted})
			s.release()
			sh.serve(s)
		case s.bookmarks && sh.now >= s.next:
			sh.serve(s)
		}
	}
	sh.lagEvents.Store(lagEvents)
	sh.lagBytes.Store(lagBytes)
}

// sendLast sends an ending subscription's last frame, if it has one, and finishes the subscription
// once the client has taken everything.
func (sh *shard) sendLast(s *Subscription, e Ending) {
	if !s.lastSent && (len(e.Last.Body) > 0 || s.gzip != nil) {
		s.lastSent = true
		sh.batch.reset()
		if len(e.Last.Body) > 0 {
			s.add(&sh.batch, e.Last)
		}
		if s.gzip != nil {
			s.gzip.leave(s.cursor)
			sh.batch.addSlice(s.gzip.sent.GzipEnd())
		}
		if !sh.write(s) {
			return
		}
	}
	sh.finish(s, e, true)
}

// fail ends a subscription at once.
func (sh *shard) fail(s *Subscription, e Ending) {
	s.endAs(&e)
	sh.finish(s, *s.ending.Load(), false)
}

// finish removes a subscription and tells its sink.
func (sh *shard) finish(s *Subscription, e Ending, complete bool) {
	moved := sh.subs[len(sh.subs)-1]
	sh.subs[s.inShard-1], moved.inShard = moved, s.inShard
	sh.subs = dropLast(sh.subs)

	p := sh.parts[s.group]
	moved = p.members[len(p.members)-1]
	p.members[s.inPart], moved.inPart = moved, s.inPart
	p.members = dropLast(p.members)
	if len(p.members) == 0 {
		delete(sh.parts, s.group)
		s.group.parts[sh.index].Store(nil)
	}

	if s.blocked {
		parked.Dec()
	}
	sink := s.sink
	s.release()
	s.sink = nil
	s.group.cache.leave(s)
	s.count(-1)
	ended[e.Reason].Inc()
	sh.noteDue(s, 0)
	if s.carrier != nil {
		s.carrier.sinks--
	}
	sink.End(e.Reason, complete)
}

func dropLast(s []*Subscription) []*Subscription {
	s[len(s)-1] = nil
	return s[:len(s)-1]
}

// stop ends the remaining subscriptions, without a proper end of stream.
func (sh *shard) stop() {
	sh.mu.Lock()
	sh.stopped = true
	posted := sh.posted
	sh.mu.Unlock()
	for _, s := range posted {
		if s.sink != nil && s.inShard == 0 {
			sh.adopt(s)
		}
	}
	for len(sh.subs) > 0 {
		sh.fail(sh.subs[len(sh.subs)-1], Ending{Reason: ShutDown})
	}
	sh.flushDue()
}
