//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// Units of resyncs.
const (
	unitResyncCPU    = "cpu-ns/client"     // of the delivering server
	unitAllResyncCPU = "all-cpu-ns/client" // of all servers
	unitResyncBytes  = "B/client"
	unitScaled       = "scaled-cpu-s" // of all servers, in proportion for ResyncScale clients
)

func resyncSection(o *Options) *report.Section {
	return &report.Section{
		Bench: "Resync",
		Title: fmt.Sprintf("Clients that all begin a watch of %d pods at once, "+
			"with initial events and the bookmark that ends them", o.Pods),
		Note: fmt.Sprintf("With fewer clients than %d (see the column), CPU-s for %d is in proportion. "+
			"That flatters a server that would slow down with more. "+
			"Wall time is to the last byte of the last client. One client decompresses its stream and checks it.",
			o.ResyncScale, o.ResyncScale),
		Columns: []report.Column{
			report.Col("CPU ms/client", unitResyncCPU, 1e-6), report.Col("all servers", unitAllResyncCPU, 1e-6),
			report.Col("MB/client", unitResyncBytes, 1e-6), report.Col("clients", "clients", 1), report.Col("wall s", "wall-ns", 1e-9),
			report.Col(fmt.Sprintf("CPU-s for %d", o.ResyncScale), unitScaled, 1),
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
	crowd, err := load.NewSyncers(st.Endpoint(), n, gzip, load.AllPods(st.Coll.Objects))
	if err != nil {
		return nil, "", err
	}
	defer crowd.Close()
	// One client comes first. A server that fills its cache does so then, and not within the window.
	if err := warmSync(ctx, st, gzip); err != nil {
		return nil, "", err
	}
	used, wall, err := crowd.Measure(ctx, server.WithBench(st))
	if err != nil {
		return nil, "", err
	}
	remark := ""
	if gzip && !crowd.Compressed() {
		remark = "answered without compression"
	}
	bytes, all := float64(crowd.Bytes()), float64(report.ServersCPU(&used))
	count := float64(n)
	m := []report.Metric{
		report.M("clients", count), report.M("wall-ns", float64(wall)),
		report.M(unitResyncCPU, float64(used.CPU[st.Peer.Name])/count),
		report.M(unitAllResyncCPU, all/count),
		report.M(unitScaled, all/1e9/count*float64(p.opts.ResyncScale)),
		report.M(unitResyncBytes, bytes/count), report.M("MB/s", bytes/1e6/wall.Seconds()),
		report.M("RSS-B", float64(used.RSS[st.Peer.Name])),
	}
	return append(m, report.UsageMetrics(&used)...), remark, nil
}

// warmSync is a resync of one client.
func warmSync(ctx context.Context, st *server.Stage, gzip bool) error {
	one, err := load.NewSyncers(st.Endpoint(), 1, gzip, load.AllPods(st.Coll.Objects))
	if err != nil {
		return err
	}
	defer one.Close()
	if err = one.Ask(); err == nil {
		_, err = one.Await(ctx, func() error { return nil })
	}
	return err
}
