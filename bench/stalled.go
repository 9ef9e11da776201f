package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func stalledSection(*Options) *report.Section {
	return &report.Section{
		Bench: "Stalled",
		Title: fmt.Sprintf("Watchers that do not read: latency of the others, of %d in all", stalledClients),
		Note: "When they read on: ended = the stream ended, and nothing was missing before its end; " +
			"caught up = nothing was missing at all; silent = the stream neither ended nor continued.",
		Columns: []report.Column{
			report.Col("p50 ms", report.UnitP50, 1e-6), report.Col("p99 ms", report.UnitP99, 1e-6), report.Col("p99.9 ms", report.UnitP999, 1e-6),
			report.Col("CPU µs/delivery", report.UnitCPU, 1e-3), report.Col("ended", "ended", 1), report.Col("caught up", "caught-up", 1), report.Col("silent", "silent", 1),
		},
		Costs: 4,
	}
}

// boundedBuffers makes watchfan end stalled watchers within the window.
func boundedBuffers(o *Options) []string {
	return []string{fmt.Sprintf("--client-buffer-frames=%d", o.StalledBound)}
}

// stalledFill is the time under load before the window: the sockets of stalled watchers fill, and
// the servers notice.
const stalledFill = 3 * time.Second

// stalled measures one peer with watchers of which some do not read, over each protocol that it has.
func (p *program) stalled(ctx context.Context, st *server.Stage) error {
	protocols := []string{load.HTTP11}
	if st.Peer.TLS {
		protocols = append(protocols, load.HTTP20)
	}
	for _, protocol := range protocols {
		for _, percent := range p.opts.Stalled {
			x := report.Sample{Peer: st.Peer, Axes: report.Axes("protocol", protocol, "stalled", fmt.Sprint(percent, "%"))}
			x.Metrics, x.Err = p.measureStalled(ctx, st, protocol, percent)
			if err := p.note(ctx, st, "Stalled", x); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *program) measureStalled(ctx context.Context, st *server.Stage, by string, percent int) ([]report.Metric, error) {
	s := p.session(st)
	s.warmup = stalledFill
	defer s.disband()
	n := stalledClients * percent / 100
	l := demand{clients: stalledClients - n}
	if by == load.HTTP20 {
		l.h2 = &load.Multiplex{Streams: mostStreams - percent, Flow: load.SmallWindows}
	}
	if err := s.assemble(ctx, l); err != nil {
		return nil, err
	}
	deaf, err := s.fleet.AddDeaf(ctx, n, st.Book.Seqs)
	if err != nil {
		return nil, err
	}
	defer deaf.Close()
	m, err := s.measure(ctx, p.opts.offered(p.opts.pace(), l.clients))
	if err != nil {
		return nil, err
	}
	fates, err := deaf.Wake(ctx, st.Book.Seqs)
	return append(m, report.M("stalled", float64(n)), report.M("ended", float64(fates[load.Ended])),
		report.M("caught-up", float64(fates[load.CaughtUp])), report.M("silent", float64(fates[load.Silent]))), err
}
