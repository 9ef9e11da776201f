//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func egressSection(o *Options) *report.Section {
	return &report.Section{
		Bench: "Egress",
		Title: fmt.Sprintf("Updates of %s to %d watchers, asked for with and without compression", o.Object, o.EgressClients),
		Note: "Status updates of pods have 3.7 KB each, and updates of EndpointSlices, which replace one endpoint, 10 KB. " +
			"Bytes = of a delivery on the wire, without TLS. A watcher with gzip decompresses each event: " +
			"compare latencies only within one way to ask. " +
			"Lean = watchers that ask for objects without metadata.managedFields, and take no event that has them. " +
			"kube-apiserver ignores that up to 1.37, and has rows of whole watchers alone.",
		Columns: []report.Column{
			report.Col("bytes/delivery", report.UnitBytes, 1), report.Col("CPU µs/delivery", report.UnitCPU, 1e-3), report.Col("all servers", report.UnitAllCPU, 1e-3),
			report.Col("p50 ms", report.UnitP50, 1e-6), report.Col("p99 ms", report.UnitP99, 1e-6), report.Col("writes/s", report.UnitWrites, 1), report.Col("RSS MiB", "RSS-B", 1.0/(1<<20)),
		},
		Costs: 6,
	}
}

// An egressCase is how watchers ask for large objects, and the writes that they get.
type egressCase struct {
	protocol load.Protocol
	lean     int // percent of the watchers
	gzip     bool
	rate     load.Rate
}

// egressCases returns the cases of a peer.
func (o *Options) egressCases(p report.Peer) (cases []egressCase) {
	for _, protocol := range o.Protocols {
		for _, lean := range o.Lean {
			for _, gzip := range []bool{false, true} {
				for _, rate := range o.EgressRates {
					if (protocol == load.HTTP11 || p.TLS) && (lean == 0 || p != report.Direct) {
						cases = append(cases, egressCase{protocol, lean, gzip, rate})
					}
				}
			}
		}
	}
	return cases
}

// isLean reports whether watcher i is lean.
func (c egressCase) isLean(i int) bool { return i%100*c.lean/100 != (i%100+1)*c.lean/100 }

// egress measures one peer's bytes and CPU for watches of large objects.
func (p *program) egress(ctx context.Context, st *server.Stage) error {
	st.Writer.Behind = p.opts.behind(st.Peer)
	defer func() { st.Writer.Behind = p.opts.Behind }()
	for _, c := range p.opts.egressCases(st.Peer) {
		n := p.opts.EgressClients
		l := demand{clients: n, rate: c.rate, gzip: c.gzip, lean: c.isLean}
		if c.protocol == load.HTTP20 {
			l.h2 = &load.Multiplex{Streams: p.opts.Streams, Flow: load.ClientGoSteps}
		}
		x := report.Sample{Peer: st.Peer, Axes: report.Axes("object", p.opts.Object, "protocol", c.protocol, "clients", n,
			"lean", fmt.Sprint(c.lean, "%"), "asked", asked(c.gzip), "rate", c.rate)}
		x.Metrics, x.Remark, x.Err = p.under(ctx, st, l)
		if err := p.note(ctx, st, "Egress", x); err != nil {
			return err
		}
	}
	return nil
}

// asked says how watchers ask for events.
func asked(gzip bool) string {
	if gzip {
		return "gzip"
	}
	return "identity"
}
