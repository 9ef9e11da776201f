package load

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A Multiplex is how a fleet watches over HTTP/2.
type Multiplex struct {
	Streams int // on each connection
	Flow    Flow
}

// A Fleet is the watchers of one endpoint. One goroutine at a time may call its methods, unless they say otherwise.
type Fleet struct {
	endpoint Endpoint
	coll     *Collection
	filters  []Filter
	Gzip     bool       // ask for compression
	H2       *Multiplex // watch over HTTP/2; nil is HTTP/1.1, with a connection for each watcher
	reader   *reader
	first    *Fleet // one watcher, from whose events latency counts; nil for none

	// These change only while nothing is written.
	Watchers []*Watch
	conns    []*streams // of HTTP/2
	fan      []int64    // for each object, the number of watchers that get its events

	expected atomic.Int64 // deliveries of all writes so far
}

// NewFleet starts the reader of a fleet without watchers. Close must be called.
func NewFleet(e Endpoint, coll *Collection, filters []Filter, a *Acks) (f *Fleet, err error) {
	f = &Fleet{endpoint: e, coll: coll, filters: filters, fan: make([]int64, coll.Objects)}
	if f.reader, err = newReader(a); err != nil {
		return nil, err
	}
	return f, nil
}

// After lets latency count from when one watcher of another server has the event. It is called before Grow.
func (f *Fleet) After(e Endpoint) (err error) {
	if f.first, err = NewFleet(e, f.coll, []Filter{Everything}, f.reader.acks); err == nil {
		f.first.reader.seen = NewAcks()
		f.reader.acks = f.first.reader.seen
	}
	return err
}

// Close ends all watches.
func (f *Fleet) Close() {
	if f.first != nil {
		f.first.Close()
	}
	f.Shrink(0)
	for _, c := range f.conns { // those of a grow that failed
		if c != nil {
			f.reader.remove(c)
		}
	}
	f.reader.close()
}

// Lost returns the number of watchers that ended or got a wrong event. Any goroutine may call it.
func (f *Fleet) Lost() int64 { return f.reader.lost.Load() }

// Err returns a LostError if a watcher is lost. Any goroutine may call it.
func (f *Fleet) Err() error {
	first := f.reader.first.Load()
	if first == nil && f.first != nil {
		return f.first.Err()
	}
	if first == nil {
		return nil
	}
	return &LostError{f.Lost(), len(f.Watchers), *first}
}

// A LostError reports watchers that ended or got a wrong event.
type LostError struct {
	Lost  int64
	Of    int
	First error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%d of %d watchers lost; the first: %v", e.Lost, e.Of, e.First)
}

func (e *LostError) Unwrap() error { return e.First }

// Grow lists the collection as a client does, and opens watches from there until there are n.
// Nothing may be written meanwhile. seqs are the latest writes.
func (f *Fleet) Grow(ctx context.Context, n int, seqs []uint64) error {
	if f.first != nil {
		if err := f.first.Grow(ctx, 1, seqs); err != nil {
			return err
		}
	}
	rv, err := ListVersion(ctx, f.endpoint, f.coll)
	if err != nil {
		return err
	}
	grown := make([]*Watch, n)
	copy(grown, f.Watchers)
	if f.H2 != nil {
		err = f.growStreams(ctx, grown, rv, seqs)
	} else {
		err = f.growConnections(ctx, grown, rv, seqs)
	}
	f.Watchers = slices.DeleteFunc(grown, func(w *Watch) bool { return w == nil })
	f.countFan()
	return err
}

// growConnections opens the watches that are missing in grown, each over its own connection.
func (f *Fleet) growConnections(ctx context.Context, grown []*Watch, rv string, seqs []uint64) error {
	return InParallel(ctx, len(f.Watchers), len(grown), func(_ context.Context, i int) error {
		w, early, err := f.request(i, rv).open()
		if err == nil {
			w.last, w.end = slices.Clone(seqs), func() { f.reader.remove(w) }
			err = f.reader.add(w, early)
		}
		if err != nil {
			return fmt.Errorf("watcher %d: %w", i, err)
		}
		grown[i] = &w.Watch
		return nil
	})
}

// growStreams opens the watches that are missing in grown, over as few connections as f.h2 allows.
func (f *Fleet) growStreams(ctx context.Context, grown []*Watch, rv string, seqs []uint64) error {
	each := f.H2.Streams
	conns := (len(grown) + each - 1) / each
	f.conns = append(f.conns, make([]*streams, max(conns-len(f.conns), 0))...)
	return InParallel(ctx, len(f.Watchers)/each, conns, func(ctx context.Context, i int) (err error) {
		if f.conns[i] == nil {
			if f.conns[i], err = dialStreams(f.request(i, rv).dialer, f.endpoint, f.H2.Flow, f.reader); err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
		}
		first := max(i*each, len(f.Watchers))
		var requests []watchRequest
		for j := first; j < min((i+1)*each, len(grown)); j++ {
			requests = append(requests, f.request(j, rv))
		}
		opened, err := f.conns[i].open(ctx, requests, seqs, false)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		for j, s := range opened {
			grown[first+j] = &s.Watch
		}
		return nil
	})
}

// perAddress is how many watchers an address has: it has 28,000 ports.
const perAddress = 20_000

func (f *Fleet) request(i int, rv string) watchRequest {
	q := watchRequest{endpoint: f.endpoint, path: f.coll.Path(), version: rv, gzip: f.Gzip}
	q.filter = f.filters[i%len(f.filters)]
	if address := 1 + i/perAddress; address > 1 {
		q.dialer.From = netip.AddrFrom4([4]byte{127, 0, 0, byte(address)})
	}
	return q
}

// Compressed reports whether a watcher has a compressed stream.
func (f *Fleet) Compressed() bool {
	return slices.ContainsFunc(f.Watchers, func(w *Watch) bool { return w.scan.inflate != nil })
}

// Shrink closes watches until there are n.
func (f *Fleet) Shrink(n int) {
	for i := n; i < len(f.Watchers); i++ {
		f.Watchers[i].end()
	}
	f.Watchers = f.Watchers[:min(n, len(f.Watchers))]
	f.countFan()
}

func (f *Fleet) countFan() {
	clear(f.fan)
	for _, w := range f.Watchers {
		for o := range f.fan {
			if w.filter.match(o) {
				f.fan[o]++
			}
		}
	}
}

// Expect must be called before a write of an object. Any goroutine may call it.
func (f *Fleet) Expect(object int) { f.expected.Add(f.fan[object]) }

// owed returns the number of missing deliveries. Any goroutine may call it.
func (f *Fleet) owed() int64 {
	return f.expected.Load() - int64(f.reader.deliveries.Load())
}

// Drain waits until every watcher has seen every expected write that its filter matches. It counts
// deliveries alone, because a watcher takes no event twice and none outside its filter (Watch.count).
func (f *Fleet) Drain(ctx context.Context, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; {
		if err := f.Err(); err != nil {
			return err
		}
		owed := f.owed()
		switch {
		case owed == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d deliveries still missing %v after the last write", owed, patience)
		}
		if err := Sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// A Reading counts the events of a fleet so far, or between two readings.
type Reading struct {
	Deliveries, Early, Bytes uint64
	Latency                  measure.Distribution
}

// Read returns the counts so far. Any goroutine may call it.
func (f *Fleet) Read() *Reading {
	r := f.reader
	now := &Reading{Deliveries: r.deliveries.Load(), Early: r.early.Load(), Bytes: r.bytes.Load()}
	now.Latency.Add(&r.latency)
	return now
}

// Sub takes away an earlier reading.
func (r *Reading) Sub(earlier *Reading) {
	r.Deliveries -= earlier.Deliveries
	r.Early -= earlier.Early
	r.Bytes -= earlier.Bytes
	r.Latency.Sub(&earlier.Latency)
}
