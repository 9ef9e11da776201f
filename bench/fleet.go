//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A fleet is all watchers of one endpoint, spread over a few readers. Its methods are for one
// goroutine, except lose.
type fleet struct {
	endpoint endpoint
	coll     *collection
	filters  []filter
	gzip     bool                       // ask for compression
	dialer   func(i int) measure.Dialer // of watcher i; nil is the zero dialer for all
	readers  []*reader

	stop    atomic.Bool
	running sync.WaitGroup

	// Changed only while nothing is written.
	watchers []*watcher
	fan      []int64 // for each object, how many watchers see its events

	expected atomic.Int64 // deliveries that writes so far must bring

	lost     atomic.Int64
	mu       sync.Mutex
	firstErr error // of the first watcher lost; guarded by mu
}

// newFleet starts the readers of a fleet without watchers. close must be called.
func newFleet(e endpoint, coll *collection, filters []filter, a *acks, readers int) (*fleet, error) {
	f := &fleet{endpoint: e, coll: coll, filters: filters, fan: make([]int64, coll.objects)}
	for range readers {
		r, err := newReader(a, f.lose)
		if err != nil {
			f.close()
			return nil, err
		}
		f.readers = append(f.readers, r)
		f.running.Go(func() { r.run(&f.stop) })
	}
	return f, nil
}

// close ends all watches.
func (f *fleet) close() {
	f.shrink(0)
	f.stop.Store(true)
	f.running.Wait()
}

// lose notes that a watcher broke off or saw what it must not. Any goroutine may call it.
func (f *fleet) lose(err error) {
	f.lost.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.firstErr == nil {
		f.firstErr = err
	}
}

// err says whether any watcher was lost.
func (f *fleet) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.firstErr == nil {
		return nil
	}
	return &lostError{f.lost.Load(), len(f.watchers), f.firstErr}
}

// lostError says that watchers were lost that should have stayed.
type lostError struct {
	lost  int64
	of    int
	first error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("%d of %d watchers lost; the first: %v", e.lost, e.of, e.first)
}

func (e *lostError) Unwrap() error { return e.first }

// grow lists the collection as a client does and opens watches from there until there are n.
// Nothing may be written meanwhile; seqs are the latest writes.
func (f *fleet) grow(ctx context.Context, n int, seqs []uint64) error {
	rv, err := listVersion(ctx, f.endpoint, f.coll)
	if err != nil {
		return err
	}
	grown := make([]*watcher, n)
	copy(grown, f.watchers)
	err = inParallel(ctx, len(f.watchers), n, func(_ context.Context, i int) error {
		w, early, err := f.request(i, rv).open()
		if err == nil {
			w.last = slices.Clone(seqs)
			err = f.reader(i).add(w, early)
		}
		if err != nil {
			return fmt.Errorf("watcher %d: %w", i, err)
		}
		grown[i] = w
		return nil
	})
	f.watchers = slices.DeleteFunc(grown, func(w *watcher) bool { return w == nil })
	f.countFan()
	return err
}

// request is how watcher i asks.
func (f *fleet) request(i int, rv string) watchRequest {
	q := watchRequest{endpoint: f.endpoint, path: f.coll.path(), version: rv, filter: f.filters[i%len(f.filters)], gzip: f.gzip}
	if f.dialer != nil {
		q.dialer = f.dialer(i)
	}
	return q
}

// inflated returns how many watchers get a compressed stream.
func (f *fleet) inflated() (n int) {
	for _, w := range f.watchers {
		if w.scan.inflate != nil {
			n++
		}
	}
	return n
}

// shrink closes watches until there are n.
func (f *fleet) shrink(n int) {
	for i := n; i < len(f.watchers); i++ {
		f.reader(i).remove(f.watchers[i])
	}
	f.watchers = f.watchers[:min(n, len(f.watchers))]
	f.countFan()
}

func (f *fleet) countFan() {
	clear(f.fan)
	for _, w := range f.watchers {
		for o := range f.fan {
			if w.filter.match(o) {
				f.fan[o]++
			}
		}
	}
}

func (f *fleet) reader(watcher int) *reader { return f.readers[watcher%len(f.readers)] }

// expect says that an object is about to be written. Any goroutine may call it.
func (f *fleet) expect(object int) { f.expected.Add(f.fan[object]) }

// owed returns how many deliveries of expected writes have not come yet. Any goroutine may call it.
func (f *fleet) owed() int64 {
	owed := f.expected.Load()
	for _, r := range f.readers {
		owed -= int64(r.deliveries.Load())
	}
	return owed
}

// drain waits until every watcher has seen every expected write that its filter matches. A watcher
// takes nothing twice and nothing that is not meant for it (watcher.event), so the count of
// deliveries says it all.
func (f *fleet) drain(ctx context.Context, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; {
		if err := f.err(); err != nil {
			return err
		}
		owed := f.owed()
		switch {
		case owed == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d deliveries still missing %v after the last write", owed, patience)
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// A reading is what a fleet has received so far, or between two readings.
type reading struct {
	deliveries, early, bookmarks, bytes uint64
	latency                             measure.Distribution
}

// read may be called at any time.
func (f *fleet) read() *reading {
	var sum reading
	for _, r := range f.readers {
		sum.deliveries += r.deliveries.Load()
		sum.early += r.early.Load()
		sum.bookmarks += r.bookmarks.Load()
		sum.bytes += r.bytes.Load()
		sum.latency.Add(&r.latency)
	}
	return &sum
}

// sub takes away an earlier reading.
func (r *reading) sub(earlier *reading) {
	r.deliveries -= earlier.deliveries
	r.early -= earlier.early
	r.bookmarks -= earlier.bookmarks
	r.bytes -= earlier.bytes
	r.latency.Sub(&earlier.latency)
}
