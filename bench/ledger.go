//go:build linux

package main

import (
	"sync/atomic"
	"time"
)

// A ledger is what a source has written so far.
type ledger struct {
	acks *acks

	// Each is owned by who writes that object while the source runs, and by run's caller otherwise.
	seqs []uint64 // for each object, the number of its latest write

	acked  atomic.Uint64 // writes acknowledged
	lateNs atomic.Int64  // the latest start behind the timetable, so far
}

// newLedger is that of objects which have just been created.
func newLedger(a *acks, objects int) *ledger {
	l := &ledger{acks: a, seqs: make([]uint64, objects)}
	for o := range l.seqs {
		l.seqs[o] = uint64(o)
	}
	return l
}

// done notes that write seq has been acknowledged.
func (l *ledger) done(seq uint64) {
	l.acks.done(seq)
	l.acked.Add(1)
}

func (l *ledger) noteLate(late time.Duration) {
	for {
		worst := l.lateNs.Load()
		if int64(late) <= worst || l.lateNs.CompareAndSwap(worst, int64(late)) {
			return
		}
	}
}
