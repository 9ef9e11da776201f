//go:build linux

package main

import (
	"context"
	"fmt"
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
			{"CPU µs/event", unitCPU, 1e-3}, {"all servers", unitAllCPU, 1e-3}, {"p99 ms", unitP99, 1e-6},
			{"p50 ms", unitP50, 1e-6}, {"p99.9 ms", unitP999, 1e-6}, {"early %", "early-%", 1},
			{"RSS MiB", "RSS-B", 1.0 / (1 << 20)},
		},
		costs: 3,
	}
}

// nodes measures one peer with few and with many watchers of one node each.
func (p *program) nodes(ctx context.Context, st *stage) error {
	few := min(50, p.opts.Nodes)
	st.writer.turn = few // each write concerns a node that has a watcher
	defer func() { st.writer.turn = 0 }()
	for _, n := range []int{few, p.opts.Nodes} {
		x := sample{peer: st.peer, axes: axes("nodes", n)}
		x.metrics, x.remark, x.err = p.under(ctx, st, load{clients: n, rate: p.opts.NodesRate, filters: st.coll.nodeFilters(n)})
		if err := p.note(ctx, st, "Nodes", x); err != nil {
			return err
		}
	}
	return nil
}
