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

// A multiplex is how a fleet watches over HTTP/2.
type multiplex struct {
	streams int // on each connection
	flow    flow
}

// A fleet is the watchers of one endpoint. One goroutine at a time may
// call its methods, unless they say otherwise.
type fleet struct {
	endpoint endpoint
	coll     *collection
	filters  []filter
	gzip     bool                       // ask for compression
	lean     func(i int) bool           // whether watcher i is lean; nil is none
	dialer   func(i int) measure.Dialer // for watcher i; nil is the zero dialer
	h2       *multiplex                 // watch over HTTP/2; nil is HTTP/1.1, with a connection for each watcher
	reader   *reader

	stop    atomic.Bool
	running sync.WaitGroup

	// These change only while nothing is written.
	watchers []*watch
	conns    []*streams // of HTTP/2
	fan      []int64    // for each object, the number of watchers that get its events

	expected atomic.Int64 // deliveries of all writes so far

	lost     atomic.Int64
	mu       sync.Mutex
	firstErr error // of the first watcher lost; guarded by mu
}

// newFleet starts the reader of a fleet without watchers, with a nice value. close must be called.
func newFleet(e endpoint, coll *collection, filters []filter, a *acks, nice int) (f *fleet, err error) {
	f = &fleet{endpoint: e, coll: coll, filters: filters, fan: make([]int64, coll.objects)}
	if f.reader, err = newReader(a, nice, f.lose); err != nil {
		return nil, err
	}
	f.running.Go(func() { f.reader.run(&f.stop) })
	return f, nil
}

// close ends all watches.
func (f *fleet) close() {
	f.shrink(0)
	for _, c := range f.conns { // those of a grow that failed
		if c != nil {
			f.reader.remove(c)
		}
	}
	f.stop.Store(true)
	f.running.Wait()
}

// lose records a watcher that ended or got a wrong event. Any goroutine may call it.
func (f *fleet) lose(err error) {
	f.lost.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.firstErr == nil {
		f.firstErr = err
	}
}

// err returns a lostError if a watcher is lost. Any goroutine may call it.
func (f *fleet) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.firstErr == nil {
		return nil
	}
	return &lostError{f.lost.Load(), len(f.watchers), f.firstErr}
}

// A lostError reports watchers that ended or got a wrong event.
type lostError struct {
	lost  int64
	of    int
	first error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("%d of %d watchers lost; the first: %v", e.lost, e.of, e.first)
}

func (e *lostError) Unwrap() error { return e.first }

// grow lists the collection as a client does, and opens watches from there until there are n.
// Nothing may be written meanwhile. seqs are the latest writes.
func (f *fleet) grow(ctx context.Context, n int, seqs []uint64) error {
	rv, err := listVersion(ctx, f.endpoint, f.coll)
	if err != nil {
		return err
	}
	grown := make([]*watch, n)
	copy(grown, f.watchers)
	if f.h2 != nil {
		err = f.growStreams(ctx, grown, rv, seqs)
	} else {
		err = f.growConnections(ctx, grown, rv, seqs)
	}
	f.watchers = slices.DeleteFunc(grown, func(w *watch) bool { return w == nil })
	f.countFan()
	return err
}

// growConnections opens the watches that are missing in grown, each over its own connection.
func (f *fleet) growConnections(ctx context.Context, grown []*watch, rv string, seqs []uint64) error {
	return inParallel(ctx, len(f.watchers), len(grown), func(_ context.Context, i int) error {
		w, early, err := f.request(i, rv).open()
		if err == nil {
			w.last = slices.Clone(seqs)
			err = f.reader.add(w, early)
		}
		if err != nil {
			return fmt.Errorf("watcher %d: %w", i, err)
		}
		grown[i] = &w.watch
		return nil
	})
}

// growStreams opens the watches that are missing in grown, over as few connections as f.h2 allows.
func (f *fleet) growStreams(ctx context.Context, grown []*watch, rv string, seqs []uint64) error {
	each := f.h2.streams
	conns := (len(grown) + each - 1) / each
	f.conns = append(f.conns, make([]*streams, max(conns-len(f.conns), 0))...)
	return inParallel(ctx, len(f.watchers)/each, conns, func(ctx context.Context, i int) (err error) {
		if f.conns[i] == nil {
			if f.conns[i], err = dialStreams(f.request(i, rv).dialer, f.endpoint, f.h2.flow, f.reader); err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
		}
		first := max(i*each, len(f.watchers))
		var requests []watchRequest
		for j := first; j < min((i+1)*each, len(grown)); j++ {
			requests = append(requests, f.request(j, rv))
		}
		opened, err := f.conns[i].open(ctx, f.reader, requests, seqs, true)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		for j, s := range opened {
			grown[first+j] = &s.watch
		}
		return nil
	})
}

// request returns the request of watcher i.
func (f *fleet) request(i int, rv string) watchRequest {
	q := watchRequest{endpoint: f.endpoint, path: f.coll.path(), version: rv, gzip: f.gzip}
	q.filter = f.filters[i%len(f.filters)]
	q.lean = f.lean != nil && f.lean(i)
	if f.dialer != nil {
		q.dialer = f.dialer(i)
	}
	return q
}

// inflated returns the number of watchers with a compressed stream.
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
		f.watchers[i].over.end(f.watchers[i], f.reader)
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

// expect must be called before a write of an object. Any goroutine may call it.
func (f *fleet) expect(object int) { f.expected.Add(f.fan[object]) }

// owed returns the number of missing deliveries. Any goroutine may call it.
func (f *fleet) owed() int64 {
	return f.expected.Load() - int64(f.reader.deliveries.Load())
}

// drain waits until every watcher has seen every expected write that its filter matches. It counts
// deliveries alone, because a watcher takes no event twice and no event outside its filter
// (watcher.event).
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

// A reading counts the events of a fleet so far, or between two readings.
type reading struct {
	deliveries, early, bookmarks, bytes uint64
	latency                             measure.Distribution
}

// read returns the counts so far. Any goroutine may call it.
func (f *fleet) read() *reading {
	r := f.reader
	now := &reading{deliveries: r.deliveries.Load(), early: r.early.Load(), bookmarks: r.bookmarks.Load(), bytes: r.bytes.Load()}
	now.latency.Add(&r.latency)
	return now
}

// sub takes away an earlier reading.
func (r *reading) sub(earlier *reading) {
	r.deliveries -= earlier.deliveries
	r.early -= earlier.early
	r.bookmarks -= earlier.bookmarks
	r.bytes -= earlier.bytes
	r.latency.Sub(&earlier.latency)
}
