package fanout

import (
	"slices"
	"sync"
	"time"
)

// Phase is a stage in the life of a subscription.
type Phase uint8

const (
	// Unknown: its shard has not answered.
	Unknown Phase = iota
	// Unserved: its shard has not taken it up yet, or it has ended.
	Unserved
	// InitialEvents: the objects that it begins with are being sent.
	InitialEvents
	// Replaying: the changes after the requested resourceVersion are being sent from the history.
	Replaying
	// Live: it is sent changes as they happen.
	Live
	// Stopping: it has an [Ending], and its client has not taken the last bytes yet.
	Stopping
)

// State describes a subscription at one instant. A zero time means never.
type State struct {
	Phase Phase
	// Events and Bytes are what its sink was given, including initial events and bookmarks. Bytes
	// are compressed bytes if the client takes gzip. Writes is in how many writes, modulo 2³².
	Events, Bytes uint64
	Writes        uint32
	// ResourceVersion is that of the last change that its sink was given, or where it began.
	ResourceVersion uint64
	// LagEvents and LagBytes are the changes in its list that its sink has not been given. Oldest
	// is when the first of them arrived. The rest of its prelude is not counted.
	LagEvents, LagBytes uint64
	Oldest              time.Time
	// Selected is when the last change arrived that its filter selects, even if that was before the
	// subscription began.
	Selected time.Time
	// ParkedSince is when its sink became blocked; zero if it is not blocked. Parks is how often it
	// has been, 65,535 times at most.
	ParkedSince time.Time
	Parks       int
	// Waited is how long its shard took to answer. At is when it answered; zero if it did not.
	Waited time.Duration
	At     time.Time
}

// Evictee is a [Sink] that is told the state of its subscription just before the subscription is
// evicted, while that state is still complete. Evicted must not wait. End may still come with
// another reason, if the subscription was ended at the same time.
type Evictee interface {
	Evicted(State)
}

// Delivered returns the Events, Bytes and Writes of the State of a subscription. Its sink calls it, at its End.
func (s *Subscription) Delivered() (events, bytes uint64, writes uint32) {
	return s.events, s.bytes, s.writes
}

// Deadline returns when the subscription will have lasted as long as it asked for. It may be called
// from any goroutine.
func (s *Subscription) Deadline() time.Time { return s.deadline.Time() }

// inspectAtOnce is how many subscriptions a shard inspects between two rounds of deliveries: about
// 25 µs of its time (BenchmarkInspect).
const inspectAtOnce = 256

// Inspect returns the states of subscriptions, each as its own shard sees it. It may be called from
// any goroutine, and returns within patience. For a subscription whose shard has not answered by
// then, State.Phase is Unknown, and Waited says how long Inspect waited. Deliveries continue
// meanwhile: a shard inspects a bounded number of subscriptions at a time, and the delivery path
// has no lock or atomic counter for this.
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
	answer := make(chan []State, 1) // the shard may answer after this function has returned
	sh.call(func() {
		found := make([]State, len(indexes))
		now := time.Now()
		for j, i := range indexes {
			found[j] = subs[i].state()
			found[j].At, found[j].Waited = now, now.Sub(asked)
		}
		answer <- found
	})
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

// state returns the state of the subscription. Only its shard calls it.
func (s *Subscription) state() State {
	st := State{
		Events:          s.events,
		Bytes:           s.bytes,
		Writes:          s.writes,
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
	case s.prelude != nil && s.prelude.initial:
		st.Phase = InitialEvents
	case s.prelude != nil:
		st.Phase = Replaying
	default:
		st.Phase = Live
	}
	if s.cursor != nil { // it has not been released
		st.LagEvents, st.LagBytes = s.behind()
		if next := s.cursor.next.Load(); next != nil {
			st.Oldest = next.received.Time()
		}
	}
	return st
}
