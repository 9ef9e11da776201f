//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The worst case of KEP-752 (EndpointSlice API): each of 20,000 updates goes to 5,000 nodes.
const (
	worstUpdates    = 20_000
	worstWatchers   = 5000
	worstDeliveries = worstUpdates * worstWatchers
)

// Units of the slices part.
const (
	unitContent   = "content-B/s" // of events, without compression
	unitWatchers  = "watchers"
	unitBytes     = "B/delivery" // on the wire, without TLS
	unitWorstCPU  = "worst-core-s"
	unitWorstAll  = "worst-all-core-s"
	unitWorstWire = "worst-B"
	unitWorstTime = "worst-s"
)

func slicesSection(o *Options) *section {
	return &section{
		bench: "Slices",
		title: fmt.Sprintf("The worst case of KEP-752, TLS: %d watchers of %d EndpointSlices; "+
			"each update replaces one endpoint", o.SliceClients, slicesObjects),
		note: "Each watcher has a connection of its own, as a kube-proxy has, and client-go's windows over HTTP/2. " +
			"Core-s = CPU seconds for a million deliveries: of the delivering process, and of all servers. " +
			"GB/s = of events, before compression. Bytes = of a delivery on the wire, without TLS. " +
			"A watcher with gzip decompresses each event, so gzip has fewer writes here than with clients " +
			"on their own machines. " +
			"writev = a server that does nothing but seal and write, with as many watchers, writes, events " +
			"in a write and bytes as watchfan in the row of the same name.",
		columns: []column{
			{"watchers", unitWatchers, 1}, {"deliveries/s", unitDeliveries, 1}, {"core-s/million", unitCPU, 1e-3},
			{"all servers", unitAllCPU, 1e-3}, {"GB/s", unitContent, 1e-9}, {"bytes", unitBytes, 1},
			{"writes/s", unitWrites, 1}, {"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6},
			{"events/write", unitBatch, 1}, {"RSS MiB", "RSS-B", 1.0 / (1 << 20)},
		},
		costs: []column{
			{"core-s/million", unitCPU, 1e-3}, {"all servers", unitAllCPU, 1e-3}, {"GB/s", unitContent, 1e-9},
			{"bytes", unitBytes, 1}, {"writes/s", unitWrites, 1}, {"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6},
		},
		inside: &inside{
			title: fmt.Sprintf("The full case: %s updates to %s watchers, %s M deliveries",
				thousands(worstUpdates), thousands(worstWatchers), thousands(worstDeliveries/1e6)),
			note: "Arithmetic from the figures above, for as many deliveries at the same cost and rate. It has not been run.",
			columns: []column{
				{"core-s", unitWorstCPU, 1}, {"all servers", unitWorstAll, 1}, {"TB on the wire", unitWorstWire, 1e-12},
				{"hours", unitWorstTime, 1.0 / 3600},
			},
		},
	}
}

// A sliceCase is a protocol and what the watchers ask for.
type sliceCase struct {
	protocol protocol
	gzip     bool
}

var sliceCases = []sliceCase{{http11, false}, {http11, true}, {http20, false}, {http20, true}}

// axes returns the axes of the case at a rate.
func (c sliceCase) axes(clients int, r rate) []axis {
	asked := "identity"
	if c.gzip {
		asked = "gzip"
	}
	return []axis{{"protocol", string(c.protocol)}, {"clients", strconv.Itoa(clients)}, {"asked", asked},
		{"rate", r.String()}}
}

// measureSlices creates the EndpointSlices and measures all peers.
func (p *program) measureSlices(ctx context.Context, cluster *cluster) error {
	st := &stage{cluster: cluster, coll: &collection{namespace: slicesSpace, slices: true, objects: slicesObjects}}
	st.writer = newWriter(cluster, st.coll, newAcks(), p.opts)
	defer st.writer.client.CloseIdleConnections()
	size, err := st.writer.createSlices(ctx)
	if err != nil {
		return err
	}
	err = p.behind(ctx, st, nil, func(ctx context.Context, st *stage) error { return p.slices(ctx, st, size) })
	if err != nil {
		return err
	}
	return p.slicesFloor(ctx, st.coll, size)
}

// slices measures one peer, over TLS. Events have size bytes.
func (p *program) slices(ctx context.Context, st *stage, size int) error {
	if !st.peer.tls {
		return nil
	}
	for _, c := range sliceCases {
		run := &slicesRun{&session{stage: st, opts: p.opts, say: p.say}, c, p.opts.SliceClients}
		for _, asked := range []rate{p.opts.SliceRate, unpaced} {
			r, remark := run.measure(ctx, asked)
			x := sample{peer: st.peer, axes: c.axes(p.opts.SliceClients, asked), remark: remark, err: r.err}
			if r.err == nil {
				x.metrics = sliceMetrics(r, size)
			}
			if err := p.note(ctx, st, partSlices, x, 9); err != nil {
				run.disband()
				return err
			}
		}
		run.disband()
	}
	return nil
}

// sliceMetrics returns the figures of a result, with those of the full case.
func sliceMetrics(r result, size int) []metric {
	m := r.metrics()
	get := func(unit string) float64 {
		v, _ := find(m, unit)
		return v
	}
	rate := get(unitDeliveries)
	return append(m,
		metric{unitWatchers, float64(r.clients)}, metric{unitContent, rate * float64(size)},
		metric{unitWorstCPU, get(unitCPU) * worstDeliveries / 1e9},
		metric{unitWorstAll, get(unitAllCPU) * worstDeliveries / 1e9},
		metric{unitWorstWire, get(unitBytes) * worstDeliveries}, metric{unitWorstTime, worstDeliveries / rate})
}

// A slicesRun is one peer with the watchers of one case, at one rate after the other.
type slicesRun struct {
	*session
	sliceCase
	clients int // watchers that the server holds
}

// leastBehind is the least number of writes that watchers may be behind. Fewer writes than that
// would leave the server idle between them.
const leastBehind = 2

// measure returns the figures at a rate. If the server ends watches, it tries again with watchers
// that are fewer writes behind, and then with fewer watchers. The remark says so.
func (s *slicesRun) measure(ctx context.Context, asked rate) (r result, remark string) {
	defer func(behind int) { s.writer.behind = behind }(s.writer.behind)
	if s.peer != direct && s.opts.OwnBehind > 0 {
		s.writer.behind = s.opts.OwnBehind
	}
	for {
		if r.err = s.connect(ctx); r.err != nil {
			return r, remark
		}
		if s.gzip && s.fleet.inflated() == 0 {
			remark = joinRemarks(remark, "answered without compression")
		}
		r = s.session.measure(ctx, s.clients, asked)
		lost := (*lostError)(nil)
		if !errors.As(r.err, &lost) || ctx.Err() != nil {
			return r, remark
		}
		s.disband()
		ended := fmt.Sprintf("it ended %d of %d watchers, at most %d behind", lost.lost, lost.of, s.writer.behind)
		switch {
		case s.writer.behind > leastBehind && asked == unpaced:
			s.writer.behind = max(s.writer.behind/2, leastBehind)
		case s.clients > 4*s.opts.SliceClients/10:
			s.clients /= 2
		default:
			return r, remark
		}
		s.say("%s", ended)
		remark = joinRemarks(remark, ended)
	}
}

// connect makes sure of a fleet of healthy watchers.
func (s *slicesRun) connect(ctx context.Context) (err error) {
	if s.fleet != nil && s.fleet.err() == nil {
		return nil
	}
	s.disband()
	if s.fleet, err = s.newFleet([]filter{everything}, s.opts.readers()); err != nil {
		return err
	}
	s.fleet.gzip = s.gzip
	if s.protocol == http20 {
		s.fleet.h2 = &multiplex{1, clientGoSteps}
	}
	return s.fleet.grow(ctx, s.clients, s.book().seqs)
}

// joinRemarks adds a remark to others, once.
func joinRemarks(all, more string) string {
	switch {
	case all == "":
		return more
	case strings.Contains(all, more):
		return all
	}
	return all + "; " + more
}
