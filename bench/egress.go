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
		Title: fmt.Sprintf("Updates of pods to %d watchers, asked for with and without compression", o.EgressClients),
		Note: "Status updates have 3.7 KB each. Bytes = of a delivery on the wire, without TLS. " +
			"A watcher with gzip decompresses each event: compare latencies only within one way to ask.",
		Columns: []report.Column{
			report.Col("bytes/delivery", report.UnitBytes, 1), report.Col("CPU µs/delivery", report.UnitCPU, 1e-3), report.Col("all servers", report.UnitAllCPU, 1e-3),
			report.Col("p50 ms", report.UnitP50, 1e-6), report.Col("p99 ms", report.UnitP99, 1e-6), report.Col("writes/s", report.UnitWrites, 1), report.Col("RSS MiB", "RSS-B", 1.0/(1<<20)),
		},
		Costs: 6,
	}
}

// egress measures one peer's bytes and CPU for watches of large objects.
func (p *program) egress(ctx context.Context, st *server.Stage) error {
	for _, gzip := range []bool{false, true} {
		for _, rate := range p.opts.EgressRates {
			n := p.opts.EgressClients
			x := report.Sample{Peer: st.Peer, Axes: report.Axes("object", load.ObjectPods, "protocol", load.HTTP11, "clients", n,
				"lean", "0%", "asked", asked(gzip), "rate", rate)}
			x.Metrics, x.Remark, x.Err = p.under(ctx, st, demand{clients: n, rate: rate, gzip: gzip})
			if err := p.note(ctx, st, "Egress", x); err != nil {
				return err
			}
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
