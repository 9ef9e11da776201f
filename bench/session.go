package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// A session is one peer's watchers.
type session struct {
	*server.Stage
	*program
	warmup time.Duration // time under load before the window
	fleet  *load.Fleet
}

func (p *program) session(st *server.Stage) *session {
	return &session{Stage: st, program: p, warmup: p.opts.Warmup}
}

// gather makes sure of a fleet of n healthy watchers over HTTP/1.1.
func (s *session) gather(ctx context.Context, n int) (err error) {
	if s.fleet != nil && s.fleet.Err() == nil && n <= len(s.fleet.Watchers) {
		s.fleet.Shrink(n)
		return nil
	}
	return s.assemble(ctx, demand{clients: n})
}

func (s *session) assemble(ctx context.Context, l demand) (err error) {
	s.disband()
	if l.filters == nil {
		l.filters = []load.Filter{load.Everything}
	}
	if s.fleet, err = s.NewFleet(l.filters...); err != nil {
		return err
	}
	s.fleet.H2, s.fleet.Gzip = l.h2, l.gzip
	if s.opts.Straight && s.Cluster != nil {
		if err := s.fleet.After(s.Cluster.Endpoint); err != nil {
			return err
		}
	}
	return s.fleet.Grow(ctx, l.clients, s.Book.Seqs)
}

// disband ends the fleet, if there is one.
func (s *session) disband() {
	if s.fleet != nil {
		s.fleet.Close()
	}
	s.fleet = nil
}

// A demand is what watchers ask for, and the writes that they get.
type demand struct {
	clients int
	rate    load.Rate
	filters []load.Filter   // of the watchers in turn; nil is everything
	gzip    bool            // ask for compression
	h2      *load.Multiplex // nil is HTTP/1.1
}

// under returns the figures of a peer under a load, and a remark.
func (p *program) under(ctx context.Context, st *server.Stage, l demand) ([]report.Metric, string, error) {
	s := p.session(st)
	defer s.disband()
	if err := s.assemble(ctx, l); err != nil {
		return nil, "", err
	}
	remark := ""
	if l.gzip && !s.fleet.Compressed() {
		remark = "answered without compression"
	}
	m, err := s.measure(ctx, l.rate)
	return m, remark, err
}

// idle connects watchers and returns the memory that they add to servers at rest. One watcher
// connects before that, because a server keeps some memory for each resource once.
func (s *session) idle(ctx context.Context, l demand) ([]report.Metric, error) {
	s.say("settling")
	n := l.clients
	l.clients = 1
	if err := s.assemble(ctx, l); err != nil {
		return nil, err
	}
	before, err := s.Rest(ctx)
	if err != nil {
		return nil, err
	}
	s.say("connecting %d watchers", n)
	start := time.Now()
	if err := s.fleet.Grow(ctx, n, s.Book.Seqs); err != nil {
		return nil, err
	}
	connected := time.Since(start)
	s.say("connected in %v; settling", connected.Round(10*time.Millisecond))
	after, err := s.Rest(ctx)
	if err != nil {
		return nil, err
	}
	name, each := s.Peer.Name, float64(max(n-1, 1))
	return []report.Metric{
		report.M(report.UnitMemory, float64(after[name]-before[name])/each),
		report.M("RSS-B", float64(after[name])), report.M("connected/s", float64(n)/connected.Seconds()),
	}, s.fleet.Err()
}

// A result is what a case has used and delivered in its window.
type result struct {
	measure.Usage               // of the servers and bench
	writes        uint64        // acknowledged
	late          time.Duration // the most that the writer was behind its timetable
	got           load.Reading  // by the watchers
	batch         float64       // events in one write to a watcher, on average; 0 is unknown
}

// measure runs one case. Its figures are the window's; that every watcher got everything is checked for the whole case.
func (s *session) measure(ctx context.Context, rt load.Rate) ([]report.Metric, error) {
	book := s.Book
	book.Late = measure.Histogram{}
	stop := s.Load(ctx, s.fleet, rt)
	r, err := s.window(ctx)
	if stopped := stop(); err == nil {
		err = stopped
	}
	var late measure.Distribution
	late.Add(&book.Late)
	r.late = late.Quantile(1)
	if drained := s.fleet.Drain(ctx, time.Minute); err == nil {
		err = drained
	}
	if err == nil && r.writes == 0 {
		err = fmt.Errorf("no write was acknowledged")
	}
	if err != nil {
		return nil, err
	}
	return r.metrics(s.Peer.Name), nil
}

// window waits for the end of the warm-up and measures the window after it.
func (s *session) window(ctx context.Context) (r result, err error) {
	if err := load.Sleep(ctx, s.warmup); err != nil {
		return r, err
	}
	w, err := s.begin(ctx)
	if err != nil {
		return r, err
	}
	if err := load.Sleep(ctx, s.opts.Window); err != nil {
		return r, err
	}
	return s.end(ctx, w)
}

type window struct {
	meter *measure.Meter
	acked uint64
	got   *load.Reading

	events, flushes float64 // of watchfan
}

func (s *session) begin(ctx context.Context) (w window, err error) {
	if w.events, w.flushes, err = s.counts(ctx); err != nil {
		return w, err
	}
	w.meter, err = measure.StartMeter(server.WithBench(s.Stage))
	w.acked, w.got = s.Book.Acked.Load(), s.fleet.Read()
	return w, err
}

// end returns what has been used and delivered since the begin of a window.
func (s *session) end(ctx context.Context, w window) (r result, err error) {
	if r.Usage, err = w.meter.Read(); err != nil {
		return r, err
	}
	r.writes, r.got = s.Book.Acked.Load()-w.acked, *s.fleet.Read()
	r.got.Sub(w.got)
	events, flushes, err := s.counts(ctx)
	if s.Floor != nil {
		r.batch = s.Floor.Batch
	} else if flushes > w.flushes {
		r.batch = (events - w.events) / (flushes - w.flushes)
	}
	return r, err
}

// metrics returns the figures. deliverer is the name of the delivering process.
func (r *result) metrics(deliverer string) (m []report.Metric) {
	all, seconds := report.ServersCPU(&r.Usage), r.Window.Seconds()
	if n := float64(r.got.Deliveries); n > 0 {
		m = append(m,
			report.M(report.UnitCPU, float64(r.CPU[deliverer])/n),
			report.M(report.UnitAllCPU, float64(all)/n),
			report.M(report.UnitPerCore, n/r.CPU[deliverer].Seconds()),
			report.M(report.UnitDeliveries, n/seconds),
			report.Q(report.UnitP50, &r.got.Latency, 0.50),
			report.Q(report.UnitP99, &r.got.Latency, 0.99),
			report.Q(report.UnitP999, &r.got.Latency, 0.999),
			report.M("early-%", 100*float64(r.got.Early)/n),
			report.M(report.UnitBytes, float64(r.got.Bytes)/n),
			report.M("RSS-B", float64(r.RSS[deliverer])))
		if r.batch > 0 {
			m = append(m, report.M(report.UnitBatch, r.batch))
		}
	} else if r.writes > 0 {
		m = append(m, report.M(report.UnitWriteCPU, float64(all)/float64(r.writes)))
	}
	m = append(m, report.M(report.UnitWrites, float64(r.writes)/seconds), report.M("late-ns", float64(r.late)))
	return append(m, report.UsageMetrics(&r.Usage)...)
}

// counts returns the events that watchfan has delivered so far, and its writes to sockets, or 0 for another peer.
func (s *session) counts(ctx context.Context) (events, flushes float64, err error) {
	if s.Proxy == nil || s.Peer == report.Direct {
		return 0, 0, nil
	}
	if events, err = server.Sum(ctx, s.Proxy.Admin, "watchfan_delivered_events_total"); err == nil {
		flushes, err = server.Sum(ctx, s.Proxy.Admin, "watchfan_flushes_total")
	}
	return events, flushes, err
}
