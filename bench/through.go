//go:build linux

package main

import (
	"context"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

const (
	unitAskCPU    = "cpu-ns/request"     // of the process that clients speak to
	unitAskAllCPU = "all-cpu-ns/request" // of all servers
	unitAskP50    = "request-p50-ns"
	unitAskP99    = "request-p99-ns"
	unitToNginx   = "cpu/nginx-cpu" // in the same round
)

func throughSection(o *Options) *report.Section {
	return &report.Section{
		Bench: "Through",
		Title: "Requests that pass through, TLS: gets of ConfigMaps, and merge patches of one each",
		Note: "Clients share one HTTP/2 connection; each sends the next request when the last one has been answered. " +
			"nginx speaks HTTP/2 to them, and HTTP/1.1 to kube-apiserver on connections that it keeps. " +
			"patch-and-read also waits for the event on a watch through the same server. " +
			"CPU is that of the process that clients speak to; kube-apiserver's own is that of the whole request.",
		Columns: []report.Column{
			report.Col("CPU µs/request", unitAskCPU, 1e-3), report.Col("all servers", unitAskAllCPU, 1e-3),
			report.Col("p50 ms", unitAskP50, 1e-6), report.Col("p99 ms", unitAskP99, 1e-6),
			report.Col("requests/s", "requests/s", 1), report.Col("CPU of nginx's", unitToNginx, 1),
		},
		Costs: 4,
	}
}

// throughAsks are what the part asks, in its order.
var throughAsks = []load.Ask{
	{Clients: 1}, {Clients: 16}, {Clients: 8, Write: true}, {Clients: 1, Write: true, Read: true},
}

// through measures one peer over TLS. Nothing is cached until the last case, because nobody has watched
// ConfigMaps at this watchfan. nginx has no part in that: it gathers the events of a watch.
func (p *program) through(ctx context.Context, st *server.Stage) error {
	if !st.Peer.TLS {
		return nil
	}
	askers := load.NewAskers(st.Endpoint(), st.Coll)
	defer askers.Close()
	for _, ask := range throughAsks {
		if ask.Read && st.Peer == report.Nginx {
			continue
		}
		x := report.Sample{Peer: st.Peer, Axes: report.Axes("request", ask, "at-a-time", ask.Clients)}
		x.Metrics, x.Err = p.measureThrough(ctx, st, askers, ask)
		if err := p.note(ctx, st, "Through", x); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) measureThrough(ctx context.Context, st *server.Stage, askers *load.Askers, ask load.Ask) (
	[]report.Metric, error) {
	if _, err := askers.Run(ctx, ask, p.opts.Warmup); err != nil {
		return nil, err
	}
	meter, err := measure.StartMeter(server.WithBench(st))
	if err != nil {
		return nil, err
	}
	took, err := askers.Run(ctx, ask, p.opts.Window)
	if err != nil {
		return nil, err
	}
	used, err := meter.Read()
	if err != nil {
		return nil, err
	}
	n := float64(took.Count)
	return append([]report.Metric{
		report.M(unitAskCPU, float64(used.CPU[st.Peer.Name])/n),
		report.M(unitAskAllCPU, float64(report.ServersCPU(&used))/n),
		report.M(unitAskP50, float64(took.Quantile(0.5))), report.M(unitAskP99, float64(took.Quantile(0.99))),
		report.M("requests/s", n/used.Window.Seconds()),
	}, report.UsageMetrics(&used)...), nil
}

// throughNginx measures nginx, if it is installed, and compares watchfan's CPU of the round with it.
func (p *program) throughNginx(ctx context.Context, st *server.Stage) (err error) {
	if p.opts.Nginx == "" {
		return nil
	}
	if st.Proxy, err = server.StartNginx(ctx, p.opts.Nginx, st.Cluster); err != nil {
		return err
	}
	st.Peer = report.Nginx
	defer func() {
		st.Proxy.Child.Stop()
		st.Proxy = nil
	}()
	if err := p.through(ctx, st); err != nil {
		return err
	}
	p.section("Through").AddRatio(unitToNginx, unitAskCPU, report.WatchfanTLS, report.Nginx)
	return nil
}
