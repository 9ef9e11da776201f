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

// acks remembers when each write was acknowledged, by its number, so that a watcher can say how
// much later its event came. A slot belongs to the writer of its number until done, and is only
// read after; a number shares its slot with the one 2^20 further, which no session reaches before
// everyone has seen the first. Any goroutine may call it.
type acks struct {
	start time.Time
	at    [1 << 20]atomic.Int64 // since start; 0 is not yet
}

func newAcks() *acks { return &acks{start: time.Now()} }

func (a *acks) slot(seq uint64) *atomic.Int64 { return &a.at[seq%uint64(len(a.at))] }

// now is a reading of the clock to compare with ack times.
func (a *acks) now() time.Duration { return time.Since(a.start) }

// begin says that write seq is about to be sent.
func (a *acks) begin(seq uint64) { a.slot(seq).Store(0) }

// done says that write seq has been acknowledged.
func (a *acks) done(seq uint64) { a.slot(seq).Store(int64(a.now())) }

// since returns how long before now write seq was acknowledged. ok is false if it was not: the
// event may well reach a watcher before the writer has its answer.
func (a *acks) since(seq uint64, now time.Duration) (d time.Duration, ok bool) {
	at := a.slot(seq).Load()
	return now - time.Duration(at), at != 0
}
