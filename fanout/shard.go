package fanout

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// shard is one goroutine of a Flusher, and the subscriptions that it owns.
type shard struct {
	flusher  *Flusher
	index    int
	interval time.Duration // between two rounds of events
	wakec    chan struct{} // one token: the queues are not empty; never closed

	mu sync.Mutex // guards the queues, which any goroutine fills and run empties, and stopped
	shardWork
	stopped bool

	// turn is held by whoever works for the shard: run, except while it waits, or a writer in lend. It guards
	// what is said below to be owned by run. It is taken before mu, and never under a cache's mutex.
	turn sync.Mutex
	lent atomic.Bool // there are ready parts of which run has not been told

	// Owned by run.
	subs        []*Subscription
	parts       map[*group]*part
	behind      []*Subscription // have more events to send than one batch holds; in the order of turns
	beginning   []*Subscription // have more of a prelude to send; in the order of turns
	owed        time.Duration   // how long the beginning have been left aside for events
	permit      chan struct{}   // holds this shard's token, with which it may serve the beginning; nil for none
	batch       batch
	due         []*Carrier // written to in this round; those without writes since have been flushed
	dueBytes    int        // what has been written to them since
	scratch     []numbered
	firstWrite  time.Time   // when this round first wrote a change; zero if it has not
	lastRound   time.Time   // when events were last served; zero without an interval
	gatherTimer *time.Timer // fires when events may be served again

	// Written by sweep: how far the slowest subscription is behind.
	lagEvents, lagBytes atomic.Uint64

	// Written by run: the [MonotonicTime] of the last round that wrote a change; 0 if none has.
	lastChange atomic.Int64

	// Owned by run.
	now    MonotonicTime // when the round, or the last sweep, began
	sweeps int           // that there were
	tally  tally
	work   shardWork // of this round; empty between two
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

// call makes run call f.
func (sh *shard) call(f func()) {
	sh.mu.Lock()
	sh.calls = append(sh.calls, f)
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
	sh.turn.Lock()
	defer sh.turn.Unlock()
	for sh.await(ctx, tick.C) {
		sh.round()
		if sh.permit != nil {
			sh.begin()
			sh.flushDue()
			<-sh.permit
			sh.permit = nil
		}
	}
	sh.stop()
}

// round does the work that there is.
func (sh *shard) round() {
	work := &sh.work
	sh.take(work)
	sh.firstWrite = time.Time{}
	began := time.Now()
	sh.now = MonotonicOf(began)
	sh.do(work)
	sh.flushDue()
	sh.catchUp(max(time.Since(began), leastTurn))
	sh.flushDue()
	if !sh.firstWrite.IsZero() {
		sh.flusher.metrics.round.observe(time.Since(sh.firstWrite).Seconds())
	}
	if len(sh.beginning) > 0 {
		sh.owe(time.Since(began))
	}
}

// mostLent is how many subscriptions a writer serves itself.
const mostLent = 4

// lend serves on the writer's goroutine the parts that it has just made ready, if they have few members and
// the shard rests. Otherwise it wakes the shard. To wake a goroutine, and perhaps a processor, takes longer
// than to write to a client.
func (sh *shard) lend() {
	if !sh.lent.Load() || !sh.lent.Swap(false) {
		return
	}
	if !sh.turn.TryLock() {
		sh.wake()
		return
	}
	defer sh.turn.Unlock()
	if sh.little() {
		sh.round()
	}
	if !sh.rests() {
		sh.wake()
	}
}

// little reports whether there is nothing to do but to send a change to a few subscriptions.
func (sh *shard) little() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := 0
	for i := 0; i < len(sh.ready) && n <= mostLent; i++ {
		n += len(sh.ready[i].members)
	}
	return n <= mostLent && sh.interval == 0 && sh.onlyReadyLocked()
}

// rests reports whether there is nothing to do.
func (sh *shard) rests() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return len(sh.ready) == 0 && sh.onlyReadyLocked()
}

// onlyReadyLocked reports whether there is nothing to do but to serve the ready parts.
func (sh *shard) onlyReadyLocked() bool {
	return len(sh.behind)+len(sh.beginning)+len(sh.posted)+len(sh.calls) == 0
}

// await waits until there may be work, or for a permit to serve the beginning. It sweeps when that
// is due. It reports false when ctx ends.
func (sh *shard) await(ctx context.Context, tick <-chan time.Time) bool {
	if len(sh.behind) > 0 {
		sh.wake()
	}
	var permits chan struct{}
	if len(sh.beginning) > 0 {
		permits = sh.flusher.permits()
	}
	var swept time.Time // zero unless a sweep is due
	ended := false
	sh.turn.Unlock()
	select {
	case <-sh.wakec:
	case permits <- struct{}{}:
		sh.permit = permits
	case <-sh.gatherTimer.C:
	case swept = <-tick:
	case <-ctx.Done():
		ended = true
	}
	sh.turn.Lock()
	if !swept.IsZero() {
		sh.sweep(swept)
	}
	return !ended
}

// shardWork is a shard's queues, or what they held at the beginning of a round. run swaps the two.
type shardWork struct {
	ready  []*part
	posted []*Subscription // new, or ending
	calls  []func()        // what else is to be done
}

// take swaps the queues for w, which is empty. During the interval between two rounds, ready parts
// stay in their queue.
func (sh *shard) take(w *shardWork) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.shardWork, *w = *w, sh.shardWork
	if sh.gathers(len(w.ready) > 0) {
		w.ready, sh.ready = sh.ready, w.ready
	}
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
	for _, f := range w.calls {
		f()
	}
	clear(w.ready)
	clear(w.posted)
	clear(w.calls)
	*w = shardWork{w.ready[:0], w.posted[:0], w.calls[:0]}
}

// leastTurn is how long, at least, a shard serves the subscriptions that are behind, and those that
// are beginning.
const leastTurn = time.Millisecond

// catchUp serves subscriptions that have more events to send than one batch holds, in turn, for the
// duration d. They get half of a busy shard's time.
func (sh *shard) catchUp(d time.Duration) {
	for until := time.Now().Add(d); len(sh.behind) > 0; {
		sh.serveNext(&sh.behind)
		if !time.Now().Before(until) {
			return
		}
	}
}

// begin serves subscriptions that have more of their preludes to send, in turn, until they have got
// what they are owed. They make way for events as long as they are owed less than mostOwed. So
// events do not wait for thousands of subscriptions that begin with all objects, and those get a
// share of a busy shard's time.
func (sh *shard) begin() {
	sh.owed = max(sh.owed, leastTurn)
	for last := time.Now(); len(sh.beginning) > 0 && sh.owed > 0; {
		sh.serveNext(&sh.beginning)
		now := time.Now()
		sh.owed -= now.Sub(last)
		last = now
		if sh.owed < mostOwed && sh.eventsReady() {
			return
		}
	}
	sh.owed = 0
}

// mostOwed is how long the beginning are left aside for events. If they are owed more, events wait
// for them, for as long again at most.
const mostOwed = 50 * time.Millisecond

// owe notes that the shard has served events for the duration d.
func (sh *shard) owe(d time.Duration) { sh.owed = min(sh.owed+d, 2*mostOwed) }

// eventsReady reports whether a round would send events that have come since the last one began.
func (sh *shard) eventsReady() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return len(sh.ready) > 0 && time.Since(sh.lastRound) >= sh.interval
}

func (sh *shard) serveNext(queue *[]*Subscription) {
	s := (*queue)[0]
	(*queue)[0] = nil
	*queue = (*queue)[1:]
	s.queued = false
	if s.sink != nil { // it has not ended
		sh.serve(s)
	}
}

// enqueue puts a subscription that has more to send than one batch holds into its queue.
func (sh *shard) enqueue(s *Subscription) {
	s.queued = true
	if s.prelude != nil {
		sh.beginning = append(sh.beginning, s)
	} else {
		sh.behind = append(sh.behind, s)
	}
}

// resume serves a subscription, or queues it for its turn if it has a prelude.
func (sh *shard) resume(s *Subscription) {
	if s.blocked || s.queued || s.ending.Load() != nil || s.prelude == nil {
		sh.serve(s)
		return
	}
	sh.enqueue(s)
}

// gathers reports whether the parts that are ready wait for more events. If they do not, a round
// begins.
func (sh *shard) gathers(ready bool) bool {
	if sh.interval == 0 || !ready {
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
	sh.resume(s)
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
	if !ok { // a reset forgets all, and says why
		s.endAs(cmp.Or(s.group.ending.Load(), &Ending{Reason: Expired}))
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
		sh.enqueue(s)
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
	s.writes++
	sh.tally.note(s, &sh.batch)
	sh.noteDue(s, sh.batch.bytes)
	if sh.batch.oldest != 0 && sh.firstWrite.IsZero() {
		sh.firstWrite = time.Now()
		sh.lastChange.Store(int64(MonotonicOf(sh.firstWrite)))
		sh.flusher.metrics.delivery.observe(sh.firstWrite.Sub(sh.batch.oldest.Time()).Seconds())
	}
	if blocked {
		sh.park(s)
	}
	return !blocked
}

// park leaves a subscription aside until its sink has drained.
func (sh *shard) park(s *Subscription) {
	s.blocked = true
	s.parks = max(s.parks, s.parks+1) // it stays at the most that it can be
	s.parkedAt = MonotonicNow()
	if !s.beside {
		sh.flusher.metrics.parks.Inc()
	}
	s.countParked(1)
	s.sink.Drain(func(err error) { sh.call(func() { sh.unpark(s, err) }) })
}

// unpark continues a subscription whose sink has written its rest, or ends one whose sink is broken.
func (sh *shard) unpark(s *Subscription, err error) {
	if s.sink == nil {
		return // it has ended meanwhile
	}
	s.blocked = false
	s.countParked(-1)
	if err != nil {
		sh.fail(s, Ending{Reason: Gone})
		return
	}
	sh.resume(s)
}

// sweep enforces deadlines and bounds, and sends the bookmarks that are due.
func (sh *shard) sweep(now time.Time) {
	sh.flusher.runs.sweep(now)
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
		case sh.now >= s.deadline && s.endAs(s.timedOut(sh.now)):
			sh.serve(s)
		case s.blocked && s.pastBounds(1) || s.pastBounds(overloadFactor):
			sh.evict(s)
		case s.bookmarks && sh.now >= s.next:
			sh.serve(s)
		}
	}
	sh.countParked()
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
		s.countParked(-1)
	}
	sink := s.sink
	s.release()
	s.sink = nil
	s.group.cache.leave(s)
	s.count(-1)
	if !s.beside {
		sh.flusher.metrics.ended[e.Reason].Inc()
	}
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
