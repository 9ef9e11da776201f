package observe

import (
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// event is an event of a stream, with the prefix of its encoding, in one part or two.
type event struct {
	first, second []byte
	at            time.Time // when it came
}

func (e event) len() int { return len(e.first) + len(e.second) }

// equals reports whether both are the same bytes.
func (e event) equals(whole []byte) bool {
	n := len(e.first)
	return e.len() == len(whole) && string(e.first) == string(whole[:n]) && string(e.second) == string(whole[n:])
}

// mostAhead and mostAheadBytes bound the events of either side that wait for the other's.
const (
	mostAhead      = 4096
	mostAheadBytes = 4 << 20
)

// sink takes what the cache would send to the client. It implements [fanout.Sink], and is never
// blocked. A sink that would keep too much ends its subscription.
type sink struct {
	wake func()

	mu     sync.Mutex
	events []event
	bytes  int
	ended  bool
	reason fanout.Reason
}

// Write implements fanout.Sink. The slices are immutable, and shared with the cache.
func (s *sink) Write(batch [][]byte) (blocked bool, err error) {
	now := time.Now()
	s.mu.Lock()
	for err == nil && len(batch) > 0 {
		e, ok := event{at: now}, false
		if e.first, e.second, batch, ok = framing.NextPayload(batch); !ok {
			err = errBroken
			break
		}
		s.events = append(s.events, e)
		if s.bytes += e.len(); len(s.events) > mostAhead || s.bytes > mostAheadBytes {
			err = errBehind
		}
	}
	much := len(s.events) >= mostAhead/4 || s.bytes >= mostAheadBytes/4
	s.mu.Unlock()
	if much {
		s.wake()
	}
	return false, err
}

// Drain implements fanout.Sink.
func (s *sink) Drain(done func(error)) { done(nil) }

// End implements fanout.Sink.
func (s *sink) End(reason fanout.Reason, _ bool) {
	s.mu.Lock()
	s.ended, s.reason = true, reason
	s.mu.Unlock()
	s.wake()
}

// take appends the events since the last call to ours, and returns whether none follows.
func (s *sink) take(ours []event) (_ []event, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ours = append(ours, s.events...)
	clear(s.events)
	s.events, s.bytes = s.events[:0], 0
	return ours, s.ended
}
