//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func http2Section(o *Options) *report.Section {
	return &report.Section{
		Bench: "HTTP2",
		Title: fmt.Sprintf("HTTP/2 beside HTTP/1.1, TLS: %d watchers of ConfigMaps that share connections",
			o.HTTP2Clients),
		Note: "Streams = watches on each connection; h1 has one. " +
			"Windows = how clients give back what they have read: seldom, to measure the servers, " +
			"or behind every 4 KiB, as client-go does. " +
			"A watcher with gzip decompresses each event. " +
			fmt.Sprintf("idle = %d watchers, and the memory that they add.", o.HTTP2Idle),
		Columns: []report.Column{
			report.Col("CPU µs/delivery", report.UnitCPU, 1e-3), report.Col("deliveries/core-s", report.UnitPerCore, 1),
			report.Col("p50 ms", report.UnitP50, 1e-6), report.Col("p99 ms", report.UnitP99, 1e-6), report.Col("KiB/watcher", report.UnitMemory, 1.0/1024),
			report.Col("deliveries/s", report.UnitDeliveries, 1), report.Col("events/write", report.UnitBatch, 1), report.Col("all servers", report.UnitAllCPU, 1e-3),
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

// http2Cases returns the cases of the part, in their order.
func (o *Options) http2Cases() []http2Case {
	n, few, pace := o.HTTP2Clients, o.Streams, o.pace()
	return []http2Case{
		{n, few, seldom, pace, false, false},
		{n, few, "client-go", pace, false, false},
		{n, 1, seldom, pace, false, false},
		{n, 1, "none", pace, false, false},
		{n, few, seldom, load.Unpaced, false, false},
		{n, few, "client-go", load.Unpaced, false, false},
		{n, few, seldom, load.Unpaced, true, false},
		{o.HTTP2Idle, mostStreams, seldom, 0, false, true},
	}
}

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
	st.Writer.Behind = p.opts.behind(st.Peer)
	defer func() { st.Writer.Behind = p.opts.Behind }()
	for _, c := range p.opts.http2Cases() {
		x := report.Sample{Peer: st.Peer, Axes: c.axes()}
		x.Metrics, x.Remark, x.Err = p.measureHTTP2(ctx, st, c)
		if err := p.note(ctx, st, "HTTP2", x); err != nil {
			return err
		}
	}
	return nil
}

// measureHTTP2 also returns a remark.
func (p *program) measureHTTP2(ctx context.Context, st *server.Stage, c http2Case) (m []report.Metric, remark string, err error) {
	l := demand{clients: c.clients, rate: p.opts.offered(c.rate, c.clients), gzip: c.gzip, h2: c.multiplex()}
	if !c.idle {
		return p.under(ctx, st, l)
	}
	s := p.session(st)
	defer s.disband()
	if err := s.assemble(l); err != nil {
		return nil, "", err
	}
	m, err = s.idle(ctx, c.clients)
	return m, "", err
}

// http2Floor measures a floor with the load of each of watchfan's cases over HTTP/2, without
// compression, and with clients that give windows back seldom. A floor reads no windows.
func (p *program) http2Floor(ctx context.Context, _ *server.Stage) error {
	for _, x := range p.section("HTTP2").Samples {
		if x.Peer == report.WatchfanTLS && x.Axis("protocol") == string(load.HTTP20) && x.Axis("asked") == asked(false) &&
			x.Axis("windows") == seldom && x.Axis("rate") != "idle" {
			if err := p.floorBeside(ctx, "HTTP2", x); err != nil {
				return err
			}
		}
	}
	return nil
}
