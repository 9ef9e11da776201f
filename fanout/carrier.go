package fanout

import "sync/atomic"

// Carrier is a connection that carries the events of several sinks. One shard serves all of them.
// At the end of a round the shard flushes each carrier whose sinks it has written to, once. So what
// is due for many streams of a connection leaves in one write.
type Carrier struct {
	flush func()                // immutable
	shard atomic.Pointer[shard] // set when the first subscription starts
	due   bool                  // in shard.due; owned by the shard
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

// noteDue makes the shard flush the carrier of s at the end of the round.
func (sh *shard) noteDue(s *Subscription) {
	if c := s.carrier; c != nil && !c.due {
		c.due = true
		sh.due = append(sh.due, c)
	}
}

// flushDue flushes the carriers that are due.
func (sh *shard) flushDue() {
	for i, c := range sh.due {
		c.due = false
		sh.due[i] = nil
		c.flush()
	}
	sh.due = sh.due[:0]
}
