//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func crowdSection(*Options) *report.Section {
	return &report.Section{
		Bench: "Crowd",
		Title: "A crowd of idle watchers, and three events that reach them in the end",
		Note: fmt.Sprintf("h1 = plaintext, a connection for each. h2 = TLS, %d on a connection. ", mostStreams) +
			"Latency is to the last byte of each watcher.",
		Columns: []report.Column{
			report.Col("KiB/watcher", report.UnitMemory, 1.0/1024),
			report.Col("RSS MiB", "RSS-B", 1.0/(1<<20)), report.Col("connected/s", "connected/s", 1),
			report.Col("CPU µs/delivery", report.UnitCPU, 1e-3), report.Col("p50 ms", report.UnitP50, 1e-6), report.Col("p99 ms", report.UnitP99, 1e-6),
			report.Col("last ms", "last-ns", 1e-6),
		},
	}
}

const (
	crowdEvents = 3               // events for the crowd, one after the other
	crowdTime   = 4 * time.Minute // for all of it
)

// oneUser lets one user have all watches.
func oneUser(*Options) []string { return []string{"--max-watches-per-user=0"} }

// crowd measures very many idle watchers at watchfan: over HTTP/1.1 at its plaintext port, and over
// HTTP/2 at the other. kube-apiserver would need 5 GiB for as many; traffic and http2 have rows for
// fewer.
func (p *program) crowd(ctx context.Context, st *server.Stage) error {
	if st.Peer == report.Direct {
		return nil
	}
	n, protocol, remark := p.opts.HTTP2Crowd, load.HTTP20, ""
	if asked := p.opts.Crowd; !st.Peer.TLS {
		// watchfan gives nine tenths of its files to connections, and three quarters of these to one address.
		room := load.RoomFor() * 27 / 40
		n, protocol = min(asked, room), load.HTTP11
		if n < asked {
			remark = fmt.Sprintf("not %d: watchfan may have %d open files, and so gives one address this many "+
				"connections; raise the hard limit (ulimit -Hn)", asked, load.RoomFor()+load.OtherFiles)
		}
	}
	x := report.Sample{Peer: st.Peer, Axes: report.Axes("protocol", protocol, "clients", n), Remark: remark}
	bounded, cancel := context.WithTimeoutCause(ctx, crowdTime, fmt.Errorf("not done after %v", crowdTime))
	defer cancel()
	x.Metrics, x.Err = p.measureCrowd(bounded, st, protocol, n)
	return p.note(ctx, st, "Crowd", x)
}

func (p *program) measureCrowd(ctx context.Context, st *server.Stage, by load.Protocol, n int) ([]report.Metric, error) {
	s := p.session(st)
	defer s.disband()
	var l demand
	if by == load.HTTP20 {
		l.h2 = &load.Multiplex{Streams: mostStreams, Flow: load.LargeSteps}
	}
	if err := s.assemble(l); err != nil {
		return nil, err
	}
	m, err := s.idle(ctx, n)
	if err != nil {
		return nil, err
	}
	meter, err := measure.StartMeter(server.WithBench(st))
	if err != nil {
		return nil, err
	}
	var last time.Duration
	for object := range crowdEvents {
		start := time.Now()
		s.fleet.Expect(object)
		if err := st.Writer.Update(object); err != nil {
			return nil, err
		}
		if err := s.fleet.Drain(ctx, time.Minute); err != nil {
			return nil, err
		}
		last = max(last, time.Since(start))
	}
	used, err := meter.Read()
	got := s.fleet.Read()
	return append(m,
		report.M(report.UnitCPU, float64(used.CPU[st.Peer.Name])/float64(got.Deliveries)),
		report.M(report.UnitP50, float64(got.Latency.Quantile(0.50))),
		report.M(report.UnitP99, float64(got.Latency.Quantile(0.99))),
		report.M("last-ns", float64(last)),
		report.M("others-cpu-%", used.Percent(used.Others))), err
}
