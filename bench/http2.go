//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
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
			{"deliveries/s", unitDeliveries, 1}, {"CPU µs/delivery", unitCPU, 1e-3}, {"deliveries/core-s", unitPerCore, 1},
			{"events/write", unitBatch, 1}, {"all servers", unitAllCPU, 1e-3},
			{"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6}, {"KiB/watcher", unitMemory, 1.0 / 1024},
		},
		costs: []column{
			{"CPU µs/delivery", unitCPU, 1e-3}, {"deliveries/core-s", unitPerCore, 1},
			{"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6}, {"KiB/watcher", unitMemory, 1.0 / 1024},
		},
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
	n, few, most, pace := o.HTTP2Clients, o.Streams, mostStreams, o.pace()
	return []http2Case{
		{n, few, true, pace, false, false},
		{n, few, false, pace, false, false},
		{n, 1, true, pace, false, false},
		{n, 0, true, pace, false, false},
		{n, few, true, unpaced, false, false},
		{n, few, false, unpaced, false, false},
		{n, few, true, unpaced, true, false},
		{o.HTTP2Idle, most, true, 0, false, true},
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
	protocol, windows, asked, r := "h2", "seldom", "identity", x.rate.String()
	switch {
	case x.streams == 0:
		protocol, windows = "h1", "none"
	case !x.seldom:
		windows = "client-go"
	}
	if x.gzip {
		asked = "gzip"
	}
	if x.idle {
		r = "idle"
	}
	return []axis{{"protocol", protocol}, {"clients", strconv.Itoa(x.clients)}, {"streams", strconv.Itoa(max(x.streams, 1))},
		{"windows", windows}, {"rate", r}, {"asked", asked}}
}

// http2 measures one peer, over TLS.
func (p *program) http2(ctx context.Context, st *stage) error {
	if !st.peer.tls {
		return nil
	}
	if st.peer != direct && p.opts.OwnBehind > 0 {
		defer func(behind int) { st.writer.behind = behind }(st.writer.behind)
		st.writer.behind = p.opts.OwnBehind
	}
	for _, c := range p.opts.http2Cases() {
		x := sample{peer: st.peer, axes: c.axes()}
		x.metrics, x.remark, x.err = p.measureHTTP2(ctx, st, c)
		if err := p.note(ctx, st, partHTTP2, x, 8); err != nil {
			return err
		}
	}
	return nil
}

// measureHTTP2 also returns a remark.
func (p *program) measureHTTP2(ctx context.Context, st *stage, c http2Case) (m []metric, remark string, err error) {
	s := &session{stage: st, opts: p.opts, say: p.say}
	defer s.disband()
	if s.fleet, err = s.newFleet([]filter{everything}, p.opts.readers()); err != nil {
		return nil, "", err
	}
	s.fleet.h2, s.fleet.gzip = c.multiplex(), c.gzip
	if c.idle {
		if err := s.measureIdle(ctx, c.clients); err != nil {
			return nil, "", err
		}
		return s.done[0].metrics(), "", nil
	}
	if err := s.fleet.grow(ctx, c.clients, st.book().seqs); err != nil {
		return nil, "", err
	}
	if c.gzip && s.fleet.inflated() == 0 {
		remark = "answered without compression"
	}
	r := s.measure(ctx, c.clients, p.opts.offered(c.rate, c.clients))
	if r.err != nil {
		return nil, "", r.err
	}
	return r.metrics(), remark, nil
}
