//go:build linux

package main

import (
	"context"
	"fmt"
)

func egressSection(o *Options) *section {
	return &section{
		bench: "Egress",
		title: fmt.Sprintf("Status updates of pods, 3.7 KB each, %v/s to %d watchers, asked for with and without compression",
			o.EgressRate, o.EgressClients),
		note: "bytes is without TLS. A watcher with gzip decompresses each event: " +
			"compare latencies only within one way to ask.",
		columns: []column{
			{"bytes/delivery", "B/delivery", 1}, {"CPU µs/delivery", unitCPU, 1e-3}, {"all servers", unitAllCPU, 1e-3},
			{"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6}, {"RSS MiB", "RSS-B", 1.0 / (1 << 20)},
		},
		costs: []column{
			{"bytes/delivery", "B/delivery", 1}, {"CPU µs/delivery", unitCPU, 1e-3}, {"all servers", unitAllCPU, 1e-3},
			{"p50 ms", unitP50, 1e-6},
		},
	}
}

// egress measures one peer's bytes and CPU for watches of pods, with and without compression.
func (p *program) egress(ctx context.Context, st *stage) error {
	for _, asked := range []string{"identity", "gzip"} {
		x := sample{peer: st.peer, axes: []axis{{"asked", asked}}}
		var inflated int
		x.metrics, inflated, x.err = p.measureEgress(ctx, st, asked == "gzip")
		switch {
		case asked != "gzip" || x.err != nil:
		case inflated == 0:
			x.remark = "answered without compression"
		default:
			x.remark = fmt.Sprintf("%d of %d compressed", inflated, p.opts.EgressClients)
		}
		if err := p.note(ctx, st, partEgress, x, 3); err != nil {
			return err
		}
	}
	return nil
}

// measureEgress also returns the number of watchers with a compressed stream.
func (p *program) measureEgress(ctx context.Context, st *stage, gzip bool) ([]metric, int, error) {
	s := &session{stage: st, opts: p.opts, say: p.say}
	defer s.disband()
	var err error
	if s.fleet, err = s.newFleet([]filter{everything}, p.opts.readers()); err != nil {
		return nil, 0, err
	}
	s.fleet.gzip = gzip
	if err := s.fleet.grow(ctx, p.opts.EgressClients, st.book().seqs); err != nil {
		return nil, 0, err
	}
	r := s.measure(ctx, p.opts.EgressClients, p.opts.EgressRate)
	if r.err != nil {
		return nil, 0, r.err
	}
	return r.metrics(), s.fleet.inflated(), nil
}
