//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
)

func nodesSection(o *Options) *section {
	return &section{
		bench: "Nodes",
		title: fmt.Sprintf("Watchers that each select the pods of their own node, as kubelets do; "+
			"%v status updates/s, each for one of them", o.NodesRate),
		note: "The cost that more watchers add to an event that concerns one of them. " +
			"kube-apiserver's CPU includes the write itself. " +
			"For half of the writes the event overtakes the answer, and its latency counts as 0.",
		columns: []column{
			{"CPU µs/event", unitCPU, 1e-3}, {"all servers", unitAllCPU, 1e-3},
			{"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6}, {"p99.9 ms", unitP999, 1e-6}, {"early %", "early-%", 1},
			{"RSS MiB", "RSS-B", 1.0 / (1 << 20)},
		},
		costs: []column{{"CPU µs/event", unitCPU, 1e-3}, {"all servers", unitAllCPU, 1e-3}, {"p99 ms", unitP99, 1e-6}},
	}
}

// nodes measures one peer with few and with many watchers of one node each.
func (p *program) nodes(ctx context.Context, st *stage) error {
	few := min(50, p.opts.Nodes)
	st.writer.turn = few // each write concerns a node that has a watcher
	defer func() { st.writer.turn = 0 }()
	for _, n := range []int{few, p.opts.Nodes} {
		x := sample{peer: st.peer, axes: []axis{{"nodes", strconv.Itoa(n)}}}
		x.metrics, x.err = p.measureNodes(ctx, st, n)
		if err := p.note(ctx, st, partNodes, x, 4); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) measureNodes(ctx context.Context, st *stage, n int) ([]metric, error) {
	s := &session{stage: st, opts: p.opts, say: p.say}
	defer s.disband()
	var err error
	if s.fleet, err = s.newFleet(st.coll.nodeFilters(n), p.opts.readers()); err != nil {
		return nil, err
	}
	if err := s.fleet.grow(ctx, n, st.book().seqs); err != nil {
		return nil, err
	}
	r := s.measure(ctx, n, p.opts.NodesRate)
	if r.err != nil {
		return nil, r.err
	}
	return r.metrics(), nil
}
