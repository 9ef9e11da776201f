package fanout

import "github.com/watchfan/watchfan/framing"

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
	Mistrusted Reason = "mistrusted"     // the cache has been wrong, and listing again did not repair it
	Moved      Reason = "moved"          // the configuration says otherwise now whether caches serve the client
)

// Reasons lists all reasons.
var Reasons = []Reason{
	TimedOut, Gone, Evicted, Expired, ShutDown, Aged, Backwards, Reencoded, LaneClosed, Redefined, Revoked, Mistrusted, Moved,
}

// Ending is how a subscription ends.
type Ending struct {
	Reason Reason
	// Graceful first sends the client everything that there is for it when the flusher comes to it
	// and then, if the client takes bookmarks, a bookmark. With the bookmark's resourceVersion the
	// client can resume at any server. Until that is done, an ending that is not graceful may
	// replace this one.
	Graceful bool
	// Last is written before the end of the stream, if the client can still take it: an ERROR
	// event, or nothing.
	Last framing.Frame

	upTo uint64 // see bound; owned by the shard, but that of a group's ending is immutable
}

// bound returns the resourceVersion up to which a graceful ending sends changes to s. That is what
// the cache had reached when the shard first asked, so the end comes while writes go on. The
// bookmark before the end has this resourceVersion, so it must not be less than that of a change
// that has been sent. As long as it would be, bound returns 0. When the list has ended, the cache may
// have gone on without it, and what the cache had reached then counts.
func (e *Ending) bound(s *Subscription, progress uint64) uint64 {
	if e.upTo == 0 {
		if over := s.group.ending.Load(); over != nil {
			e.upTo = over.upTo
		} else if progress >= s.lastVersion || !s.bookmarks {
			e.upTo = progress
		}
	}
	return e.upTo
}

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

// timedOut returns how the subscription ends at its deadline, and how later if it still waits for a client
// that has taken nothing since.
func (s *Subscription) timedOut(now MonotonicTime) *Ending {
	if !s.aging {
		return &Ending{Reason: TimedOut}
	}
	stalled := s.blocked && now-max(s.parkedAt, s.deadline) >= MonotonicTime(mostStalled)
	return &Ending{Reason: Aged, Graceful: !stalled}
}
