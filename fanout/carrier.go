package fanout

import "sync/atomic"

// Carrier is a connection that carries the events of several sinks. One shard serves all of them,
// and in each round flushes a carrier once: what is due for many streams leaves in one write. It
// flushes a carrier when it has written to all its sinks, because what is due is still in the
// processor's cache then. With one sink for each of 1,000 connections, that makes a delivery a
// quarter cheaper. It flushes the others at the end of the round, or before, if much is due for all
// carriers together: the memory of a round is bounded, and nobody waits for the last of thousands of
// connections.
type Carrier struct {
	flush func()                // immutable
	shard atomic.Pointer[shard] // set when the first subscription starts

	// Owned by the shard.
	sinks   int  // those of subscriptions that the shard has
	written int  // writes to them since the last flush
	bytes   int  // of those writes
	listed  bool // in shard.due
}

// NewCarrier returns a carrier. flush sends what the sinks have gathered, and must not wait.
func NewCarrier(flush func()) *Carrier { return &Carrier{flush: flush} }

// Carried is a [Sink] whose Write may leave the sending to its carrier. Carrier always returns the
// same carrier.
type Carried interface {
	Sink
	Carrier() *Carrier
}

// place returns the carrier's shard, which the first call takes from next.
func (c *Carrier) place(next func() *shard) *shard {
	if c.shard.Load() == nil {
		c.shard.CompareAndSwap(nil, next())
	}
	return c.shard.Load()
}

// maxDueBytes bounds what is due for all carriers of a shard. It takes some 2 ms to seal.
const maxDueBytes = 2 << 20

// noteDue makes the shard flush the carrier of s, for which bytes more are due, at the end of the
// round at the latest.
func (sh *shard) noteDue(s *Subscription, bytes int) {
	c := s.carrier
	if c == nil {
		return
	}
	if !c.listed {
		c.listed = true
		sh.due = append(sh.due, c)
	}
	c.written++
	c.bytes += bytes
	if sh.dueBytes += bytes; sh.dueBytes >= maxDueBytes {
		sh.flushDue()
	}
}

// flushWritten flushes the carrier of s if all its sinks have been written to. It follows what is
// written to s at a time.
func (sh *shard) flushWritten(s *Subscription) {
	if c := s.carrier; c != nil && c.written > 0 && c.written >= c.sinks {
		sh.flushCarrier(c)
	}
}

// flushDue flushes the carriers that are due, and counts what has been written.
func (sh *shard) flushDue() {
	sh.tally.count()
	for i, c := range sh.due {
		c.listed = false
		sh.due[i] = nil
		if c.written > 0 {
			sh.flushCarrier(c)
		}
	}
	sh.due = sh.due[:0]
}

func (sh *shard) flushCarrier(c *Carrier) {
	sh.dueBytes -= c.bytes
	c.written, c.bytes = 0, 0
	c.flush()
}
