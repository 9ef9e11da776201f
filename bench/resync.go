//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// Units of resyncs.
const (
	unitResyncCPU    = "cpu-ns/client"     // of the server that delivers
	unitAllResyncCPU = "all-cpu-ns/client" // of all servers
	unitResyncBytes  = "B/client"
	unitScaled       = "scaled-cpu-s" // of all servers, for as many clients as are asked for
)

func resyncSection(o *Options) *section {
	return &section{
		bench: "Resync",
		title: fmt.Sprintf("Clients that all begin a watch of %d pods at once, with initial events and the bookmark that ends them", o.Pods),
		note: fmt.Sprintf("Fewer clients than %d where the column says so; CPU-s for %d is then proportional, which flatters who would slow down with more. "+
			"Wall time is to the last byte of the last client; clients decompress nothing, but one, which checks.", o.ResyncScale, o.ResyncScale),
		columns: []column{
			{"clients", "clients", 1}, {"wall s", "wall-ns", 1e-9}, {"CPU ms/client", unitResyncCPU, 1e-6}, {"all servers", unitAllResyncCPU, 1e-6},
			{fmt.Sprintf("CPU-s for %d", o.ResyncScale), unitScaled, 1}, {"MB/client", unitResyncBytes, 1e-6}, {"MB/s", "MB/s", 1}, {"RSS MiB", "RSS-B", 1.0 / (1 << 20)},
		},
		costs: []column{{"CPU ms/client", unitResyncCPU, 1e-6}, {"all servers", unitAllResyncCPU, 1e-6}, {"MB/client", unitResyncBytes, 1e-6}},
	}
}

// resyncTime bounds one case.
const resyncTime = 5 * time.Minute

// resync measures one peer whose clients all come at once.
func (p *program) resync(ctx context.Context, st *stage) error {
	for _, asked := range []string{"identity", "gzip"} {
		n := p.opts.ResyncClients
		if st.peer == direct {
			n = p.opts.ResyncDirect
		}
		x := sample{peer: st.peer, axes: []axis{{"asked", asked}}}
		bounded, cancel := context.WithTimeout(ctx, resyncTime)
		x.metrics, x.remark, x.err = p.measureResync(bounded, st, n, asked == "gzip")
		cancel()
		if err := p.note(ctx, st, partResync, x, 6); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) measureResync(ctx context.Context, st *stage, n int, gzip bool) (m []metric, remark string, err error) {
	crowd, err := newSyncers(st.endpoint(), n, gzip, st.coll.objects)
	defer crowd.close()
	if err != nil {
		return nil, "", err
	}
	// One client first: a server that has to fill its cache does so for all of them, and not within
	// the measurement.
	if err := warmSync(ctx, st, gzip); err != nil {
		return nil, "", err
	}
	meter, err := measure.StartMeter(withBench(st))
	if err != nil {
		return nil, "", err
	}
	if err := crowd.ask(); err != nil {
		return nil, "", err
	}
	var used measure.Usage // when bytes came last
	wall, err := crowd.await(ctx, func() (err error) {
		used, err = meter.Read()
		return err
	})
	if err == nil {
		err = crowd.check()
	}
	if err != nil {
		return nil, "", err
	}
	if gzip && !crowd.compressed() {
		remark = "answered without compression"
	}
	bytes, all := float64(crowd.bytes()), float64(serversCPU(&used))
	count := float64(n)
	m = []metric{
		{"clients", count}, {"wall-ns", float64(wall)},
		{unitResyncCPU, float64(used.CPU[st.peer.name]) / count}, {unitAllResyncCPU, all / count},
		{unitScaled, all / 1e9 / count * float64(p.opts.ResyncScale)},
		{unitResyncBytes, bytes / count}, {"MB/s", bytes / 1e6 / wall.Seconds()}, {"RSS-B", float64(used.RSS[st.peer.name])},
	}
	return append(m, usageMetrics(&used)...), remark, nil
}

// warmSync is a resync of one client.
func warmSync(ctx context.Context, st *stage, gzip bool) error {
	one, err := newSyncers(st.endpoint(), 1, gzip, st.coll.objects)
	defer one.close()
	if err == nil {
		err = one.ask()
	}
	if err == nil {
		_, err = one.await(ctx, func() error { return nil })
	}
	return err
}

// syncers are clients that resync at the same time, read by one reader.
type syncers struct {
	all    []*syncer
	reader *reader
	stop   func()

	start time.Time
	mu    sync.Mutex
	lost  error // of the first that broke off; guarded by mu
}

// newSyncers connects n clients, which have yet to ask. The first of them checks what it gets if it
// is compressed.
func newSyncers(e endpoint, n int, gzip bool, objects int) (*syncers, error) {
	s := &syncers{stop: func() {}}
	for i := range n {
		c, err := open(measure.Dialer{Receive: 128 << 10}, e) // what a client's receive buffer begins with
		if err != nil {
			return s, fmt.Errorf("client %d: %w", i, err)
		}
		s.all = append(s.all, &syncer{conn: c, request: resyncRequest(e, gzip), objects: objects, keep: i == 0})
	}
	return s, nil
}

func resyncRequest(e endpoint, gzip bool) string {
	return requestHead(e, podsPath+"?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "application/json", gzip)
}

// ask lets all clients ask, one right after the other, and reads what comes from then on.
func (s *syncers) ask() error {
	var err error
	if s.reader, err = newReader(newAcks(), s.lose); err != nil {
		return err
	}
	stop, done := startReader(s.reader)
	s.stop = func() { stop(); <-done }
	s.start = time.Now()
	for _, c := range s.all {
		if err := c.ask(); err != nil {
			return err
		}
		if err := s.reader.add(c, nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *syncers) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = err
	}
}

// await waits until all clients have got everything, and returns how long the last took. That
// everything has come shows in a stream that is not compressed by its end bookmark, and in one that
// is by silence. It calls progress while bytes come.
func (s *syncers) await(ctx context.Context, progress func() error) (time.Duration, error) {
	const silence = 6 * time.Second // more than a server waits for proof that what it has is current
	for seen := time.Duration(0); ; {
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, fmt.Errorf("%s after %v: %w", s.count(), time.Since(s.start).Round(time.Second), err)
		}
		s.mu.Lock()
		lost := s.lost
		s.mu.Unlock()
		if lost != nil {
			return 0, lost
		}
		s.reader.mu.Lock()
		now, last, waiting := s.reader.acks.now(), time.Duration(0), false
		for _, c := range s.all {
			quiet := c.compressed() && c.bytes > 0 && now-c.last > silence
			waiting = waiting || !c.done && !quiet
			last = max(last, c.last)
		}
		s.reader.mu.Unlock()
		if last > seen {
			seen = last
			if err := progress(); err != nil {
				return 0, err
			}
		}
		if !waiting {
			return last - s.start.Sub(s.reader.acks.start), nil
		}
	}
}

// count says how many clients are done.
func (s *syncers) count() string {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	done := 0
	for _, c := range s.all {
		if c.done {
			done++
		}
	}
	return strconv.Itoa(done) + " of " + strconv.Itoa(len(s.all)) + " clients done"
}

// check says whether the clients got everything. Of compressed streams it decompresses the first;
// the others must be about as long.
func (s *syncers) check() error {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	for i, c := range s.all {
		if err := c.check(); err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		if first := s.all[0].bytes; c.bytes < first*9/10 {
			return fmt.Errorf("client %d got %d bytes, where the first got %d", i, c.bytes, first)
		}
	}
	return nil
}

func (s *syncers) compressed() bool {
	return slices.ContainsFunc(s.all, func(c *syncer) bool { return c.compressed() })
}

func (s *syncers) bytes() (sum uint64) {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	for _, c := range s.all {
		sum += c.bytes
	}
	return sum
}

func (s *syncers) close() {
	s.stop()
	for _, c := range s.all {
		if s.reader != nil {
			s.reader.remove(c)
		} else {
			c.sock.Close()
		}
	}
}
