package fanout

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Flusher writes frames to clients. It has a few shards. Each is one goroutine that owns its share
// of the subscriptions. The shard takes the frames that have come for a subscription since its last
// write, and writes them in one call. Under light load that is one event at once. Under heavy load
// the batches grow by themselves.
type Flusher struct {
	shards  []*shard
	metrics *Metrics
	next    atomic.Uint32
	runs    compressedRuns

	// Each holds a token for each shard that serves preludes now: at most half of the shards, or all.
	half, all chan struct{}
}

// NewFlusher returns a Flusher with n shards; one for each processor is right. interval is not
// negative. If it is positive, a shard waits for that long between two rounds of events, to send
// more events in one write. So an event waits for at most the interval, and not at all if the
// interval before it had no event. Everything else is sent at once. m is the Flusher's alone.
func NewFlusher(n int, interval time.Duration, m *Metrics) *Flusher {
	f := &Flusher{
		metrics: m,
		runs:    compressedRuns{metrics: m, byFirst: make(map[*byte][]*compressedRun)},
		half:    make(chan struct{}, max(1, n/2)),
		all:     make(chan struct{}, n),
	}
	for i := range n {
		f.shards = append(f.shards, &shard{
			flusher:  f,
			index:    i,
			interval: interval,
			wakec:    make(chan struct{}, 1),
			parts:    make(map[*group]*part),
			scratch:  make([]numbered, 0, replayStep),
		})
	}
	return f
}

// Lag returns how far the slowest subscription was behind a moment ago, in events and in bytes,
// which may be those of two different subscriptions. Initial events are not counted. It may be
// called from any goroutine.
func (f *Flusher) Lag() (events, bytes uint64) {
	for _, sh := range f.shards {
		events, bytes = max(events, sh.lagEvents.Load()), max(bytes, sh.lagBytes.Load())
	}
	return events, bytes
}

// Quiet reports whether no client has been sent a change for a second, as after a restart. Initial
// events and bookmarks don't count. It may be called from any goroutine.
func (f *Flusher) Quiet() bool {
	since := MonotonicNow() - MonotonicTime(quietFor)
	return !slices.ContainsFunc(f.shards, func(sh *shard) bool {
		last := MonotonicTime(sh.lastChange.Load())
		return last != 0 && last >= since
	})
}

// quietFor is how long clients must have been sent no change before others that begin may use all
// processors.
const quietFor = time.Second

// permits returns the channel that takes the token of a shard that is to serve preludes.
func (f *Flusher) permits() chan struct{} {
	if f.Quiet() {
		return f.all
	}
	return f.half
}

// Run serves subscriptions until ctx ends, which should be after all of them have ended. Those that
// have not are ended without their last bytes. When Run returns, all its goroutines have ended.
func (f *Flusher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, sh := range f.shards {
		wg.Go(func() { sh.run(ctx) })
	}
	wg.Wait()
}

// Start serves a subscription through sink until it ends. If the Flusher has stopped, the
// subscription ends at once. Each subscription is started once.
func (f *Flusher) Start(s *Subscription, sink Sink) {
	s.sink = sink
	sh := f.place(s)
	sh.mu.Lock()
	stopped := sh.stopped
	if !stopped {
		s.shard.Store(sh) // not before: End posts to the shard that it finds, and that may stop meanwhile
		s.count(1)
		sh.posted = append(sh.posted, s)
	}
	sh.mu.Unlock()
	if stopped {
		s.group.cache.leave(s)
		sink.End(ShutDown, false) // sends by itself what it has to say
		return
	}
	sh.wake()
}

// place returns the shard that serves s. Shards take turns: each gets as many connections as the
// others, whatever the number of their streams.
func (f *Flusher) place(s *Subscription) *shard {
	next := func() *shard { return f.shards[int(f.next.Add(1))%len(f.shards)] }
	c, ok := s.sink.(Carried)
	if !ok {
		return next()
	}
	s.carrier = c.Carrier()
	return s.carrier.place(next)
}

// part is a group's members in one shard.
type part struct {
	shard   *shard
	group   *group
	queued  atomic.Bool
	members []*Subscription // owned by the shard
}

// wake makes the shard serve the part's members. It costs the writer one atomic operation if the
// shard has not yet begun on an earlier call. With lends, the writer calls the shard's lend soon.
func (p *part) wake(lends bool) {
	if !p.queued.CompareAndSwap(false, true) {
		return
	}
	p.shard.mu.Lock()
	p.shard.ready = append(p.shard.ready, p)
	p.shard.mu.Unlock()
	if lends {
		p.shard.lent.Store(true)
	} else {
		p.shard.wake()
	}
}

func (p *part) end(e Ending) {
	p.shard.call(func() {
		for i := len(p.members) - 1; i >= 0; i-- {
			s := p.members[i]
			s.endAs(&e)
			p.shard.takeUp(s)
		}
	})
}
