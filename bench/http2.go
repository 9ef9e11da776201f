package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func http2Section(o *Options) *report.Section {
	return &report.Section{
		Bench: "HTTP2",
		Title: fmt.Sprintf("HTTP/2 beside HTTP/1.1, TLS: %d watchers of ConfigMaps that share connections",
			o.HTTP2Clients),
		Note: "Streams = watches on each connection. Windows = how clients give back what they have read. " +
			"idle = the memory that watchers add, and three events that reach all of them in the end.",
		Columns: []report.Column{
			report.Col("CPU µs/delivery", report.UnitCPU, 1e-3), report.Col("deliveries/core-s", report.UnitPerCore, 1),
			report.Col("p50 ms", report.UnitP50, 1e-6), report.Col("p99 ms", report.UnitP99, 1e-6), report.Col("KiB/watcher", report.UnitMemory, 1.0/1024),
			report.Col("deliveries/s", report.UnitDeliveries, 1), report.Col("events/write", report.UnitBatch, 1), report.Col("all servers", report.UnitAllCPU, 1e-3),
			report.Col("RSS MiB", "RSS-B", 1.0/(1<<20)), report.Col("last ms", "last-ns", 1e-6),
		},
		Costs: 5,
	}
}

// mostStreams is the number of streams that kube-apiserver allows on a connection.
const mostStreams = 100

// An http2Case is one way to spread watchers over connections, and their load.
type http2Case struct {
	clients int
	streams int    // on each connection
	windows string // how clients give them back, of flows; "none" is HTTP/1.1
	rate    load.Rate
	gzip    bool
	idle    bool // nothing is written
}

// http2Cases returns the cases of a peer, in their order. The largest crowd is at watchfan alone:
// kube-apiserver would need 5 GiB for it.
func (o *Options) http2Cases(peer report.Peer) []http2Case {
	n, few, pace := o.HTTP2Clients, o.Streams, o.pace()
	all := []http2Case{
		{n, few, seldom, pace, false, false},
		{n, few, "client-go", pace, false, false},
		{n, 1, seldom, pace, false, false},
		{n, 1, "none", pace, false, false},
		{n, few, seldom, load.Unpaced, false, false},
		{n, few, "client-go", load.Unpaced, false, false},
		{n, few, seldom, load.Unpaced, true, false},
		{o.HTTP2Idle, mostStreams, seldom, 0, false, true},
		{o.HTTP2Crowd, mostStreams, seldom, 0, false, true},
	}
	if peer == report.Direct {
		return all[:len(all)-1]
	}
	return all
}

// oneUser lets one user have all watches.
func oneUser(*Options) []string { return []string{"--max-watches-per-user=0"} }

const seldom = "seldom"

var flows = map[string]load.Flow{seldom: load.LargeSteps, "client-go": load.ClientGoSteps}

// multiplex returns how a fleet watches; nil is HTTP/1.1.
func (x http2Case) multiplex() *load.Multiplex {
	if flow, ok := flows[x.windows]; ok {
		return &load.Multiplex{Streams: x.streams, Flow: flow}
	}
	return nil
}

func (x http2Case) axes() []report.Axis {
	protocol, r := load.HTTP20, x.rate.String()
	if x.multiplex() == nil {
		protocol = load.HTTP11
	}
	if x.idle {
		r = "idle"
	}
	return report.Axes("protocol", protocol, "clients", x.clients, "streams", x.streams, "windows", x.windows, "rate", r,
		"asked", asked(x.gzip))
}

// http2 measures one peer, over TLS.
func (p *program) http2(ctx context.Context, st *server.Stage) error {
	if !st.Peer.TLS {
		return nil
	}
	for _, c := range p.opts.http2Cases(st.Peer) {
		x := report.Sample{Peer: st.Peer, Axes: c.axes()}
		x.Metrics, x.Remark, x.Err = p.measureHTTP2(ctx, st, c)
		if err := p.note(ctx, st, "HTTP2", x); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) measureHTTP2(ctx context.Context, st *server.Stage, c http2Case) (m []report.Metric, remark string, err error) {
	l := demand{clients: c.clients, rate: p.opts.offered(c.rate, c.clients), gzip: c.gzip, h2: c.multiplex()}
	if !c.idle {
		return p.under(ctx, st, l)
	}
	s := p.session(st)
	defer s.disband()
	if m, err = s.idle(ctx, l); err != nil {
		return nil, "", err
	}
	reached, err := s.reach(ctx)
	return append(m, reached...), "", err
}

// reach writes three events, one after the other, and measures how they reach all watchers.
func (s *session) reach(ctx context.Context) ([]report.Metric, error) {
	var last time.Duration
	used, err := metered(s.Stage, func() error {
		for object := range 3 {
			start := time.Now()
			s.fleet.Expect(object)
			if err := s.Writer.Update(object); err != nil {
				return err
			}
			if err := s.fleet.Drain(ctx, time.Minute); err != nil {
				return err
			}
			last = max(last, time.Since(start))
		}
		return nil
	})
	got := s.fleet.Read()
	return append([]report.Metric{
		report.M(report.UnitCPU, float64(used.CPU[s.Peer.Name])/float64(max(got.Deliveries, 1))),
		report.Q(report.UnitP50, &got.Latency, 0.50), report.Q(report.UnitP99, &got.Latency, 0.99), report.M("last-ns", float64(last)),
	}, report.UsageMetrics(&used)...), err
}

// http2Floor measures a floor with the load of each of watchfan's cases over HTTP/2, without
// compression, and with clients that give windows back seldom. A floor reads no windows.
func (p *program) http2Floor(ctx context.Context, _ *server.Stage) error {
	for _, x := range p.section("HTTP2").Samples {
		if x.Peer == report.WatchfanTLS && x.Axis("protocol") == load.HTTP20 && x.Axis("asked") == asked(false) &&
			x.Axis("windows") == seldom && x.Axis("rate") != "idle" {
			if err := p.floorBeside(ctx, "HTTP2", x); err != nil {
				return err
			}
		}
	}
	return nil
}
