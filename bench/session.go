//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A session is one peer's watchers.
type session struct {
	*stage
	opts   *Options
	say    func(format string, args ...any)
	warmup time.Duration // time under load before the window
	fleet  *fleet
}

func (p *program) session(st *stage) *session {
	return &session{stage: st, opts: p.opts, say: p.say, warmup: p.opts.Warmup}
}

// gather makes sure of a fleet of n healthy watchers over HTTP/1.1.
func (s *session) gather(ctx context.Context, n int) (err error) {
	if s.fleet != nil && s.fleet.err() == nil && n <= len(s.fleet.watchers) {
		s.fleet.shrink(n)
		return nil
	}
	if err := s.assemble(load{}); err != nil || n == 0 {
		return err
	}
	return s.fleet.grow(ctx, n, s.book().seqs)
}

// assemble replaces the fleet by one without watchers, for a load.
func (s *session) assemble(l load) (err error) {
	s.disband()
	if l.filters == nil {
		l.filters = []filter{everything}
	}
	if s.fleet, err = s.newFleet(l.filters, s.opts.Nice); err == nil {
		s.fleet.h2, s.fleet.gzip, s.fleet.lean = l.h2, l.gzip, l.lean
	}
	return err
}

// disband ends the fleet, if there is one.
func (s *session) disband() {
	if s.fleet != nil {
		s.fleet.close()
	}
	s.fleet = nil
}

// A load is what watchers ask for, and the writes that they get.
type load struct {
	clients int
	rate    rate
	filters []filter         // of the watchers in turn; nil is everything
	gzip    bool             // ask for compression
	lean    func(i int) bool // whether watcher i is lean; nil is none
	h2      *multiplex       // nil is HTTP/1.1
}

// under returns the figures of a peer under a load, and a remark.
func (p *program) under(ctx context.Context, st *stage, l load) ([]metric, string, error) {
	s := p.session(st)
	defer s.disband()
	if err := s.assemble(l); err != nil {
		return nil, "", err
	}
	if err := s.fleet.grow(ctx, l.clients, s.book().seqs); err != nil {
		return nil, "", err
	}
	remark := ""
	if l.gzip && s.fleet.inflated() == 0 {
		remark = "answered without compression"
	}
	m, err := s.measure(ctx, l.rate)
	return m, remark, err
}

// idle connects n watchers and returns the memory that they add to servers at rest. One watcher
// connects before that, because a server keeps some memory for each resource once.
func (s *session) idle(ctx context.Context, n int) ([]metric, error) {
	s.say("settling")
	if err := s.fleet.grow(ctx, 1, s.book().seqs); err != nil {
		return nil, err
	}
	before, err := s.rest(ctx)
	if err != nil {
		return nil, err
	}
	s.say("connecting %d watchers", n)
	start := time.Now()
	if err := s.fleet.grow(ctx, n, s.book().seqs); err != nil {
		return nil, err
	}
	connected := time.Since(start)
	s.say("connected in %v; settling", connected.Round(10*time.Millisecond))
	after, err := s.rest(ctx)
	if err != nil {
		return nil, err
	}
	name, each := s.peer.name, float64(max(n-1, 1))
	return []metric{
		{unitMemory, float64(after.RSS[name]-before.RSS[name]) / each},
		{"RSS-B", float64(after.RSS[name])}, {"connected/s", float64(n) / connected.Seconds()},
	}, s.fleet.err()
}

// A result is what a case has used and delivered in its window.
type result struct {
	measure.Usage               // of the servers and bench
	writes        uint64        // acknowledged
	late          time.Duration // the most that the writer was behind its timetable
	got           reading       // by the watchers
	batch         float64       // events in one write to a watcher, on average; 0 is unknown
}

// measure runs one case. Its figures cover the window alone. The check that every watcher got
// everything covers the whole case.
func (s *session) measure(ctx context.Context, rt rate) ([]metric, error) {
	book := s.book()
	book.lateNs.Store(0)
	stop := s.load(ctx, s.fleet, rt)
	r, err := s.window(ctx)
	if stopped := stop(); err == nil {
		err = stopped
	}
	r.late = time.Duration(book.lateNs.Load())
	if drained := s.fleet.drain(ctx, time.Minute); err == nil {
		err = drained
	}
	if err == nil && r.writes == 0 {
		err = fmt.Errorf("no write was acknowledged")
	}
	if err != nil {
		return nil, err
	}
	return r.metrics(s.peer.name), nil
}

// window waits for the end of the warm-up and measures the window after it.
func (s *session) window(ctx context.Context) (r result, err error) {
	if err := sleep(ctx, s.warmup); err != nil {
		return r, err
	}
	before, err := s.counts(ctx)
	if err != nil {
		return r, err
	}
	meter, err := measure.StartMeter(withBench(s.stage))
	if err != nil {
		return r, err
	}
	acked, got := s.book().acked.Load(), s.fleet.read()
	if err := sleep(ctx, s.opts.Window); err != nil {
		return r, err
	}
	if r.Usage, err = meter.Read(); err != nil {
		return r, err
	}
	r.writes, r.got = s.book().acked.Load()-acked, *s.fleet.read()
	r.got.sub(got)
	after, err := s.counts(ctx)
	if err != nil {
		return r, err
	}
	if n := after.writes - before.writes; n > 0 {
		r.batch = (after.events - before.events) / n
	} else if s.floor != nil {
		r.batch = s.floor.batch
	}
	return r, nil
}

// metrics returns the figures. deliverer is the name of the delivering process.
func (r *result) metrics(deliverer string) (m []metric) {
	all, seconds := serversCPU(&r.Usage), r.Window.Seconds()
	if n := float64(r.got.deliveries); n > 0 {
		m = append(m,
			metric{unitCPU, float64(r.CPU[deliverer]) / n},
			metric{unitAllCPU, float64(all) / n},
			metric{unitPerCore, n / r.CPU[deliverer].Seconds()},
			metric{unitDeliveries, n / seconds},
			metric{unitP50, float64(r.got.latency.Quantile(0.50))},
			metric{"p90-ns", float64(r.got.latency.Quantile(0.90))},
			metric{unitP99, float64(r.got.latency.Quantile(0.99))},
			metric{unitP999, float64(r.got.latency.Quantile(0.999))},
			metric{"p99.99-ns", float64(r.got.latency.Quantile(0.9999))},
			metric{"early-%", 100 * float64(r.got.early) / n},
			metric{unitBytes, float64(r.got.bytes) / n},
			metric{"RSS-B", float64(r.RSS[deliverer])})
		if r.batch > 0 {
			m = append(m, metric{unitBatch, r.batch})
		}
	} else if r.writes > 0 {
		m = append(m, metric{unitWriteCPU, float64(all) / float64(r.writes)})
	}
	m = append(m, metric{unitWrites, float64(r.writes) / seconds}, metric{"late-ns", float64(r.late)})
	return append(m, usageMetrics(&r.Usage)...)
}

// ownCounts are watchfan's counts of its writes to sockets, and of the events in them.
type ownCounts struct{ events, writes float64 }

// counts returns watchfan's counts so far, or none for another peer.
func (s *session) counts(ctx context.Context) (c ownCounts, err error) {
	if s.proxy == nil || s.peer == direct {
		return c, nil
	}
	page, err := s.proxy.admin.get(ctx, "/metrics")
	if err != nil {
		return c, err
	}
	if c.events, err = sumSeries(string(page), "watchfan_delivered_events_total"); err == nil {
		c.writes, err = sumSeries(string(page), "watchfan_flushes_total")
	}
	return c, err
}
