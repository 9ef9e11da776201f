package main

import (
	"context"
	"fmt"

	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func nodesSection(*Options) *report.Section {
	return &report.Section{
		Bench: "Nodes",
		Title: fmt.Sprintf("Watchers that each select the pods of their own node, as kubelets do; "+
			"%v status updates/s, each for one of them", nodesRate),
		Note: "The cost that more watchers add to an event that concerns one of them. " +
			"kube-apiserver's CPU includes the write itself. " +
			"For half of the writes the event overtakes the answer, and its latency counts as 0.",
		Columns: []report.Column{
			report.Col("CPU µs/event", report.UnitCPU, 1e-3), report.Col("all servers", report.UnitAllCPU, 1e-3), report.Col("p99 ms", report.UnitP99, 1e-6),
			report.Col("p50 ms", report.UnitP50, 1e-6), report.Col("p99.9 ms", report.UnitP999, 1e-6), report.Col("early %", "early-%", 1),
			report.Col("RSS MiB", "RSS-B", 1.0/(1<<20)),
		},
		Costs: 3,
	}
}

// nodes measures one peer with few and with many watchers of one node each.
func (p *program) nodes(ctx context.Context, st *server.Stage) error {
	few := min(50, p.opts.Nodes)
	st.Writer.Turn = few // each write concerns a node that has a watcher
	defer func() { st.Writer.Turn = st.Coll.Objects }()
	for _, n := range []int{few, p.opts.Nodes} {
		x := report.Sample{Peer: st.Peer, Axes: report.Axes("nodes", n)}
		x.Metrics, x.Remark, x.Err = p.under(ctx, st, demand{clients: n, rate: nodesRate, filters: st.Coll.NodeFilters(n)})
		if err := p.note(ctx, st, "Nodes", x); err != nil {
			return err
		}
	}
	return nil
}
