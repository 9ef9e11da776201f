//go:build linux

package main

import (
	"context"
	"fmt"
)

func egressSection(o *Options) *section {
	return &section{
		bench: "Egress",
		title: fmt.Sprintf("Updates of %s to %d watchers, asked for with and without compression", o.Object, o.EgressClients),
		note: "Status updates of pods have 3.7 KB each, and updates of EndpointSlices, which replace one endpoint, 10 KB. " +
			"Bytes = of a delivery on the wire, without TLS. A watcher with gzip decompresses each event: " +
			"compare latencies only within one way to ask. " +
			"Lean = watchers that ask for objects without metadata.managedFields, and take no event that has them. " +
			"kube-apiserver ignores that up to 1.37, and has rows of whole watchers alone.",
		columns: []column{
			{"bytes/delivery", unitBytes, 1}, {"CPU µs/delivery", unitCPU, 1e-3}, {"all servers", unitAllCPU, 1e-3},
			{"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6}, {"writes/s", unitWrites, 1}, {"RSS MiB", "RSS-B", 1.0 / (1 << 20)},
		},
		costs: 6,
	}
}

// An egressCase is how watchers ask for large objects, and the writes that they get.
type egressCase struct {
	protocol protocol
	lean     int // percent of the watchers
	gzip     bool
	rate     rate
}

// egressCases returns the cases of a peer.
func (o *Options) egressCases(p peer) (cases []egressCase) {
	for _, protocol := range o.Protocols {
		for _, lean := range o.Lean {
			for _, gzip := range []bool{false, true} {
				for _, rate := range o.EgressRates {
					if (protocol == http11 || p.tls) && (lean == 0 || p != direct) {
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
func (p *program) egress(ctx context.Context, st *stage) error {
	defer st.writer.allow(st.writer.behind)
	st.writer.allow(p.opts.behind(st.peer))
	for _, c := range p.opts.egressCases(st.peer) {
		n := p.opts.EgressClients
		l := load{clients: n, rate: c.rate, gzip: c.gzip, lean: c.isLean}
		if c.protocol == http20 {
			l.h2 = &multiplex{p.opts.Streams, clientGoSteps}
		}
		x := sample{peer: st.peer, axes: axes("object", p.opts.Object, "protocol", c.protocol, "clients", n,
			"lean", fmt.Sprint(c.lean, "%"), "asked", asked(c.gzip), "rate", c.rate)}
		x.metrics, x.remark, x.err = p.under(ctx, st, l)
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
