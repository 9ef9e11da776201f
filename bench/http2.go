//go:build linux

package main

import (
	"context"
	"fmt"
)

func http2Section(o *Options) *section {
	return &section{
		bench: "HTTP2",
		title: fmt.Sprintf("HTTP/2 beside HTTP/1.1, TLS: %d watchers of ConfigMaps that share connections",
			o.HTTP2Clients),
		note: "Streams = watches on each connection; h1 has one. " +
			"Windows = how clients give back what they have read: seldom, to measure the servers, " +
			"or behind every 4 KiB, as client-go does. " +
			"A watcher with gzip decompresses each event. " +
			fmt.Sprintf("idle = %d watchers, and the memory that they add.", o.HTTP2Idle),
		columns: []column{
			{"CPU µs/delivery", unitCPU, 1e-3}, {"deliveries/core-s", unitPerCore, 1},
			{"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6}, {"KiB/watcher", unitMemory, 1.0 / 1024},
			{"deliveries/s", unitDeliveries, 1}, {"events/write", unitBatch, 1}, {"all servers", unitAllCPU, 1e-3},
		},
		costs: 5,
	}
}

// mostStreams is the number of streams that kube-apiserver allows on a connection.
const mostStreams = 100

// An http2Case is one way to spread watchers over connections, and their load.
type http2Case struct {
	clients int
	streams int // on each connection; 0 is HTTP/1.1
	seldom  bool
	rate    rate
	gzip    bool
	idle    bool // nothing is written
}

// http2Cases returns the cases of the part, in their order.
func (o *Options) http2Cases() []http2Case {
	n, few, pace := o.HTTP2Clients, o.Streams, o.pace()
	return []http2Case{
		{n, few, true, pace, false, false},
		{n, few, false, pace, false, false},
		{n, 1, true, pace, false, false},
		{n, 0, true, pace, false, false},
		{n, few, true, unpaced, false, false},
		{n, few, false, unpaced, false, false},
		{n, few, true, unpaced, true, false},
		{o.HTTP2Idle, mostStreams, true, 0, false, true},
	}
}

// multiplex returns how a fleet watches; nil is HTTP/1.1.
func (x http2Case) multiplex() *multiplex {
	switch {
	case x.streams == 0:
		return nil
	case x.seldom:
		return &multiplex{x.streams, largeSteps}
	}
	return &multiplex{x.streams, clientGoSteps}
}

func (x http2Case) axes() []axis {
	protocol, windows, r := http20, "seldom", x.rate.String()
	switch {
	case x.streams == 0:
		protocol, windows = http11, "none"
	case !x.seldom:
		windows = "client-go"
	}
	if x.idle {
		r = "idle"
	}
	return axes("protocol", protocol, "clients", x.clients, "streams", max(x.streams, 1), "windows", windows, "rate", r,
		"asked", asked(x.gzip))
}

// http2 measures one peer, over TLS.
func (p *program) http2(ctx context.Context, st *stage) error {
	if !st.peer.tls {
		return nil
	}
	defer st.writer.allow(st.writer.behind)
	st.writer.allow(p.opts.behind(st.peer))
	for _, c := range p.opts.http2Cases() {
		x := sample{peer: st.peer, axes: c.axes()}
		x.metrics, x.remark, x.err = p.measureHTTP2(ctx, st, c)
		if err := p.note(ctx, st, "HTTP2", x); err != nil {
			return err
		}
	}
	return nil
}

// measureHTTP2 also returns a remark.
func (p *program) measureHTTP2(ctx context.Context, st *stage, c http2Case) (m []metric, remark string, err error) {
	l := load{clients: c.clients, rate: p.opts.offered(c.rate, c.clients), gzip: c.gzip, h2: c.multiplex()}
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
func (p *program) http2Floor(ctx context.Context, _ *stage) error {
	for _, x := range p.section("HTTP2").samples {
		if x.peer == watchfanTLS && x.axis("protocol") == string(http20) && x.axis("asked") == asked(false) &&
			x.axis("windows") == "seldom" && x.axis("rate") != "idle" {
			if err := p.floorBeside(ctx, "HTTP2", x); err != nil {
				return err
			}
		}
	}
	return nil
}
