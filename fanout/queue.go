package fanout

import (
	"errors"
	"sync"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// Queue is a [Sink] that keeps what a client would be sent until somebody takes it. Wake and Most are set
// before it is used. Any goroutine may take.
type Queue struct {
	Wake func() // called when a quarter of Most waits, and when nothing follows; must not wait
	Most int    // how many bytes wait before the subscription is blocked

	mu     sync.Mutex
	events []Queued
	bytes  int
	done   func(error) // of Drain; nil unless it is blocked
	reason Reason      // "" before the end
}

// Queued is an event with the prefix of its encoding, in one part or two, which are the cache's.
type Queued struct {
	First, Second []byte
	At            time.Time // when it came
}

// Len is the number of its bytes.
func (e Queued) Len() int { return len(e.First) + len(e.Second) }

var errNoEvent = errors.New("a batch is no events")

// Write implements Sink.
func (q *Queue) Write(batch [][]byte) (blocked bool, err error) {
	q.mu.Lock()
	for now := time.Now(); len(batch) > 0 && err == nil; {
		e, ok := Queued{At: now}, false
		if e.First, e.Second, batch, ok = framing.NextPayload(batch); !ok {
			err = errNoEvent
			break
		}
		q.events = append(q.events, e)
		q.bytes += e.Len()
	}
	bytes := q.bytes
	q.mu.Unlock()
	if bytes >= q.Most/4 {
		q.Wake()
	}
	return bytes >= q.Most, err
}

// Drain implements Sink.
func (q *Queue) Drain(done func(error)) {
	q.mu.Lock()
	q.done = done
	q.mu.Unlock()
	q.Wake()
}

// End implements Sink.
func (q *Queue) End(reason Reason, _ bool) {
	q.mu.Lock()
	q.reason = reason
	q.mu.Unlock()
	q.Wake()
}

// Take appends the events that have come to events. ended is why nothing follows them; "" if something may.
func (q *Queue) Take(events []Queued) (_ []Queued, ended Reason) {
	q.mu.Lock()
	events = append(events, q.events...)
	done := q.done
	q.events, q.bytes, q.done, ended = nil, 0, nil, q.reason
	q.mu.Unlock()
	if done != nil {
		done(nil)
	}
	return events, ended
}
