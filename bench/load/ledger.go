package load

import (
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A Ledger records the writes of a source.
type Ledger struct {
	Acks *Acks

	// The worker that writes an object owns its entry while the source runs. Otherwise run's caller
	// owns all entries.
	Seqs []uint64 // for each object, the number of its latest write

	Acked atomic.Uint64     // writes acknowledged
	Late  measure.Histogram // how far writes were behind the timetable
}

// NewLedger returns the ledger of new objects: the write of each is its creation.
func NewLedger(objects int) *Ledger {
	l := &Ledger{Acks: NewAcks(), Seqs: make([]uint64, objects)}
	for o := range l.Seqs {
		l.Seqs[o] = uint64(o)
	}
	return l
}

// Done records that write seq has been acknowledged.
func (l *Ledger) Done(seq uint64) {
	l.Acks.done(seq)
	l.Acked.Add(1)
}

// Acks records the time of each write's acknowledgement, by the number of the write. From it a
// watcher computes the latency of the event. A slot belongs to the writer of its number until done;
// then it is only read. Two numbers that differ by 2^20 share a slot: no session gets that far
// before every watcher has seen the first. Any goroutine may call its methods.
type Acks struct {
	start time.Time
	at    [1 << 20]atomic.Int64 // since start; 0 is not yet
}

func NewAcks() *Acks { return &Acks{start: time.Now()} }

func (a *Acks) slot(seq uint64) *atomic.Int64 { return &a.at[seq%uint64(len(a.at))] }

// now returns the time since the start, to compare with slots.
func (a *Acks) now() time.Duration { return time.Since(a.start) }

// Begin clears the slot of write seq, before the write is sent.
func (a *Acks) Begin(seq uint64) { a.slot(seq).Store(0) }

func (a *Acks) done(seq uint64) { a.slot(seq).Store(int64(a.now())) }

// since returns the time from the acknowledgement of write seq to now. ok is false without one: an
// event may reach a watcher before the writer has its answer.
func (a *Acks) since(seq uint64, now time.Duration) (d time.Duration, ok bool) {
	at := a.slot(seq).Load()
	return now - time.Duration(at), at != 0
}
