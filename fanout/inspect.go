package fanout

import (
	"slices"
	"sync"
	"time"
)

// Phase is how far a subscription has come.
type Phase uint8

const (
	// Unknown: its shard has not answered.
	Unknown Phase = iota
	// Unserved: it has yet to be taken up, or has ended.
	Unserved
	// InitialEvents: the objects of its beginning are being sent.
	InitialEvents
	// Replaying: what happened behind the resourceVersion that it asked for is being sent.
	Replaying
	// Live: it is sent what happens.
	Live
	// Stopping: it has an [Ending], and its client has yet to take the last bytes.
	Stopping
)

// State is how a subscription stands at one instant. Times are zero for never.
type State struct {
	Phase Phase
	// Events and Bytes are what its sink was given, initial events and bookmarks among them, as
	// gzip if that is what it takes.
	Events, Bytes uint64
	// ResourceVersion is that of the last change that its sink was given, or where it began.
	ResourceVersion uint64
	// LagEvents and LagBytes are the changes in its list that its sink has not been given, and
	// Oldest is when the first of them came. They do not count what is left of its prelude.
	LagEvents, LagBytes uint64
	Oldest              time.Time
	// Selected is when a change last came that its filter selects, be it before the subscription
	// began.
	Selected time.Time
	// ParkedSince is since when its sink has been blocked; zero if it is not. Parks is how often it
	// has been.
	ParkedSince time.Time
	Parks       int
	// Waited is how long its shard took to answer.
	Waited time.Duration
}

// Evictee is a [Sink] that is told how its subscription stands when that is to be ended with
// [Evicted], before anything of it is let go. Evicted must not wait. End may still come with
// another reason, if the subscription was ended at the same time.
type Evictee interface {
	Evicted(State)
}

// Deadline is when the subscription will have lasted as long as it asked for. It may be called from
// any goroutine.
func (s *Subscription) Deadline() time.Time { return s.deadline }

// inspectAtOnce is how many subscriptions a shard looks at between two rounds of deliveries: some
// 25 µs of it (BenchmarkInspect).
const inspectAtOnce = 256

// Inspect returns how subscriptions stand, each as its own shard sees it. It may be called from any
// goroutine, and returns within patience; then State.Phase is Unknown for those whose shard has not
// answered, and Waited says for how long. Deliveries go on meanwhile: a shard looks at a bounded
// number of subscriptions at a time, and nothing on its way to a client is locked or counted
// atomically for this.
func (f *Flusher) Inspect(subs []*Subscription, patience time.Duration) []State {
	states := make([]State, len(subs))
	byShard := make(map[*shard][]int)
	for i, s := range subs {
		if sh := s.shard.Load(); sh != nil {
			byShard[sh] = append(byShard[sh], i)
		} else {
			states[i].Phase = Unserved
		}
	}
	deadline := time.Now().Add(patience)
	var wg sync.WaitGroup
	for sh, indexes := range byShard {
		wg.Go(func() {
			for some := range slices.Chunk(indexes, inspectAtOnce) {
				sh.inspect(subs, some, states, deadline)
			}
		})
	}
	wg.Wait()
	return states
}

// inspect sets states[i] for each i of indexes.
func (sh *shard) inspect(subs []*Subscription, indexes []int, states []State, deadline time.Time) {
	asked := time.Now()
	answer := make(chan []State, 1) // the shard may answer when nobody waits any longer
	sh.mu.Lock()
	sh.inspections = append(sh.inspections, func() {
		found := make([]State, len(indexes))
		waited := time.Since(asked)
		for j, i := range indexes {
			found[j] = subs[i].state()
			found[j].Waited = waited
		}
		answer <- found
	})
	sh.mu.Unlock()
	sh.wake()

	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case found := <-answer:
		for j, i := range indexes {
			states[i] = found[j]
		}
	case <-late.C:
		for _, i := range indexes {
			states[i].Waited = time.Since(asked)
		}
	}
}

// state returns how the subscription stands; the shard calls it.
func (s *Subscription) state() State {
	st := State{
		Events:          s.events,
		Bytes:           s.bytes,
		ResourceVersion: max(s.startVersion, s.lastVersion),
		Selected:        s.group.tail.Load().received.Time(),
		Parks:           int(s.parks),
	}
	if s.blocked {
		st.ParkedSince = s.parkedAt.Time()
	}
	switch {
	case s.sink == nil || s.inShard == 0:
		return State{Phase: Unserved}
	case s.ends():
		st.Phase = Stopping
	case s.prelude.snapshot != nil:
		st.Phase = InitialEvents
	case s.prelude.replay:
		st.Phase = Replaying
	default:
		st.Phase = Live
	}
	if s.cursor != nil { // it has not let go
		st.LagEvents, st.LagBytes = s.behind()
		if next := s.cursor.next.Load(); next != nil {
			st.Oldest = next.received.Time()
		}
	}
	return st
}
