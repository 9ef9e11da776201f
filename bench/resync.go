package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func resyncSection(o *Options) *report.Section {
	return &report.Section{
		Bench: "Resync",
		Title: fmt.Sprintf("Clients that all begin a watch of %d pods at once, "+
			"with initial events and the bookmark that ends them", o.Pods),
		Columns: []report.Column{
			report.Col("CPU ms/client", "cpu-ns/client", 1e-6), report.Col("all servers", "all-cpu-ns/client", 1e-6),
			report.Col("MB/client", "B/client", 1e-6), report.Col("clients", "clients", 1), report.Col("wall s", "wall-ns", 1e-9),
			report.Col("MB/s", "MB/s", 1), report.Col("RSS MiB", "RSS-B", 1.0/(1<<20)),
		},
		Costs: 3,
	}
}

// resyncTime bounds one case.
const resyncTime = 5 * time.Minute

// resync measures one peer with clients that all come at once.
func (p *program) resync(ctx context.Context, st *server.Stage) error {
	for _, gzip := range []bool{false, true} {
		n := p.opts.ResyncClients
		if st.Peer == report.Direct {
			n = p.opts.ResyncDirect
		}
		x := report.Sample{Peer: st.Peer, Axes: report.Axes("asked", asked(gzip))}
		bounded, cancel := context.WithTimeout(ctx, resyncTime)
		x.Metrics, x.Remark, x.Err = p.measureResync(bounded, st, n, gzip)
		cancel()
		if err := p.note(ctx, st, "Resync", x); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) measureResync(ctx context.Context, st *server.Stage, n int, gzip bool) ([]report.Metric, string, error) {
	crowd, err := load.NewSyncers(ctx, st.Endpoint(), n, gzip, load.AllPods(st.Coll.Objects))
	if err != nil {
		return nil, "", err
	}
	defer crowd.Close()
	// One client comes first. A server that fills its cache does so then, and not within the window.
	first, err := load.NewSyncers(ctx, st.Endpoint(), 1, gzip, load.AllPods(st.Coll.Objects))
	if err != nil {
		return nil, "", err
	}
	defer first.Close()
	if _, _, err := first.Measure(ctx, nil); err != nil {
		return nil, "", err
	}
	m, err := joined(ctx, st, crowd, n, "client")
	remark := ""
	if gzip && !crowd.Compressed.Load() {
		remark = "answered without compression"
	}
	return m, remark, err
}

// joined lets n clients ask for their initial events at once, and returns the figures for each, by a name
// for it.
func joined(ctx context.Context, st *server.Stage, crowd *load.Syncers, n int, each string) ([]report.Metric, error) {
	used, wall, err := crowd.Measure(ctx, server.WithBench(st))
	count, bytes := float64(n), float64(crowd.Bytes())
	return append([]report.Metric{
		report.M("clients", count), report.M("wall-ns", float64(wall)),
		report.M("cpu-ns/"+each, float64(used.CPU[st.Peer.Name])/count),
		report.M("all-cpu-ns/"+each, float64(report.ServersCPU(&used))/count),
		report.M("B/"+each, bytes/count), report.M("MB/s", bytes/1e6/wall.Seconds()),
		report.M("RSS-B", float64(used.RSS[st.Peer.Name])),
	}, report.UsageMetrics(&used)...), err
}
