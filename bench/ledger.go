//go:build linux

package main

import (
	"sync/atomic"
	"time"
)

// A ledger records the writes of a source.
type ledger struct {
	acks *acks

	// The worker that writes an object owns its entry while the source runs. Otherwise run's caller
	// owns all entries.
	seqs []uint64 // for each object, the number of its latest write

	acked  atomic.Uint64 // writes acknowledged
	lateNs atomic.Int64  // the most that a write was behind the timetable
}

// newLedger returns the ledger of new objects: the write of each is its creation.
func newLedger(a *acks, objects int) *ledger {
	l := &ledger{acks: a, seqs: make([]uint64, objects)}
	for o := range l.seqs {
		l.seqs[o] = uint64(o)
	}
	return l
}

// done records that write seq has been acknowledged.
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

// acks records the time of each write's acknowledgement, by the number of the write. From it a
// watcher computes the latency of the event. A slot belongs to the writer of its number until done;
// then it is only read. Two numbers that differ by 2^20 share a slot: no session gets that far
// before every watcher has seen the first. Any goroutine may call its methods.
type acks struct {
	start time.Time
	at    [1 << 20]atomic.Int64 // since start; 0 is not yet
}

func newAcks() *acks { return &acks{start: time.Now()} }

func (a *acks) slot(seq uint64) *atomic.Int64 { return &a.at[seq%uint64(len(a.at))] }

// now returns the time since the start, to compare with slots.
func (a *acks) now() time.Duration { return time.Since(a.start) }

// begin clears the slot of write seq, before the write is sent.
func (a *acks) begin(seq uint64) { a.slot(seq).Store(0) }

// done records that write seq has been acknowledged now.
func (a *acks) done(seq uint64) { a.slot(seq).Store(int64(a.now())) }

// since returns the time from the acknowledgement of write seq to now. ok is false without one: an
// event may reach a watcher before the writer has its answer.
func (a *acks) since(seq uint64, now time.Duration) (d time.Duration, ok bool) {
	at := a.slot(seq).Load()
	return now - time.Duration(at), at != 0
}
