//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A result is one measured case: one peer, one number of watchers, one rate, one round.
type result struct {
	peer    peer
	clients int
	rate    rate // of idle, meaningless
	idle    bool // the case measured memory, not traffic
	round   int
	err     error // why the figures are invalid

	measure.Usage               // of the servers and bench; if idle, the window is the time to connect
	writes        uint64        // acknowledged
	late          time.Duration // the most that the writer was behind its timetable
	got           reading       // by the watchers
	plain         time.Duration // CPU time of the servers for as many writes without a watcher; 0 is unknown
	batch         float64       // events in one write to a watcher, on average; 0 is unknown
	own           []metric      // watchfan's part of the latency

	grew   map[string]float64   // bytes per watcher, by process; idle only
	kernel measure.KernelMemory // growth in bytes for all watchers, of both ends of their connections; idle only
}

// A session is one peer's turn in one round.
type session struct {
	*stage
	opts  *Options
	round int
	say   func(format string, args ...any)
	fleet *fleet
	done  []result
}

// gather makes sure of a fleet of n healthy watchers. The first time it measures their idle cost.
func (s *session) gather(ctx context.Context, n int, first bool) (err error) {
	if s.fleet != nil && s.fleet.err() == nil && n <= len(s.fleet.watchers) {
		s.fleet.shrink(n)
		return nil
	}
	if s.fleet != nil {
		s.fleet.close()
	}
	s.fleet, err = s.newFleet(s.coll.filters(s.opts.Mixed), s.opts.readers())
	if err != nil || n == 0 {
		return err
	}
	if !first {
		return s.fleet.grow(ctx, n, s.book().seqs)
	}
	return s.measureIdle(ctx, n)
}

// disband ends the fleet, if there is one.
func (s *session) disband() {
	if s.fleet != nil {
		s.fleet.close()
	}
	s.fleet = nil
}

// measureIdle connects n watchers and records the memory that they add to servers at rest. One
// watcher connects before that, because a server keeps some memory for each resource once.
func (s *session) measureIdle(ctx context.Context, n int) error {
	s.say("settling")
	if err := s.fleet.grow(ctx, 1, s.book().seqs); err != nil {
		return err
	}
	before, err := s.rest(ctx)
	if err != nil {
		return err
	}
	kernel, err := measure.ReadKernelMemory()
	if err != nil {
		return err
	}
	s.say("connecting %d watchers", n)
	start := time.Now()
	if err := s.fleet.grow(ctx, n, s.book().seqs); err != nil {
		return err
	}
	connected := time.Since(start)
	s.say("connected in %v; settling", connected.Round(10*time.Millisecond))
	after, err := s.rest(ctx)
	if err != nil || n == 1 {
		return err
	}
	r := result{peer: s.peer, clients: n, idle: true, round: s.round,
		Usage: measure.Usage{Window: connected, RSS: after.RSS}, grew: make(map[string]float64)}
	if r.kernel, err = measure.ReadKernelMemory(); err != nil {
		return err
	}
	r.kernel = r.kernel.Since(kernel)
	for name, rss := range after.RSS {
		r.grew[name] = float64(rss-before.RSS[name]) / float64(n-1)
	}
	s.done = append(s.done, r)
	return s.fleet.err()
}

// measure runs one case. Its figures cover the window alone. The check that every watcher got
// everything covers the whole case.
func (s *session) measure(ctx context.Context, clients int, rt rate) result {
	r := result{peer: s.peer, clients: clients, rate: rt, round: s.round}
	book := s.book()
	book.lateNs.Store(0)
	stop := s.load(ctx, s.fleet, rt)
	r.err = s.window(ctx, &r)
	if err := stop(); r.err == nil {
		r.err = err
	}
	r.late = time.Duration(book.lateNs.Load())
	if err := s.fleet.drain(ctx, time.Minute); r.err == nil {
		r.err = err
	}
	if r.err == nil && r.writes == 0 {
		r.err = fmt.Errorf("no write was acknowledged")
	}
	return r
}

// window waits for the end of the warm-up and measures the window after it.
func (s *session) window(ctx context.Context, r *result) error {
	if err := sleep(ctx, s.opts.Warmup); err != nil {
		return err
	}
	before, err := s.counts(ctx)
	if err != nil {
		return err
	}
	meter, err := measure.StartMeter(withBench(s.stage))
	if err != nil {
		return err
	}
	acked, got := s.book().acked.Load(), s.fleet.read()
	if err := sleep(ctx, s.opts.Window); err != nil {
		return err
	}
	if r.Usage, err = meter.Read(); err != nil {
		return err
	}
	r.writes, r.got = s.book().acked.Load()-acked, *s.fleet.read()
	r.got.sub(got)
	after, err := s.counts(ctx)
	if err != nil {
		return err
	}
	if n := after.writes - before.writes; n > 0 {
		r.batch = (after.events - before.events) / n
	}
	r.own, err = ownLatency("", before.own, after.own)
	return err
}

// ownCounts are watchfan's counts of its writes to sockets, of the events in them, and of the time
// until then.
type ownCounts struct {
	events, writes float64
	own            map[string]buckets
}

// counts returns watchfan's counts so far, or none for another peer.
func (s *session) counts(ctx context.Context) (c ownCounts, err error) {
	if s.proxy == nil || s.peer == direct {
		return c, nil
	}
	page, err := s.proxy.admin.get(ctx, "/metrics")
	if err != nil {
		return c, err
	}
	if c.events, err = sumSeries(string(page), "watchfan_delivered_events_total"); err != nil {
		return c, err
	}
	if c.writes, err = sumSeries(string(page), "watchfan_flushes_total"); err != nil {
		return c, err
	}
	c.own, err = ownHistograms(page)
	return c, err
}
