//go:build linux

package main

import (
	"context"
	"strconv"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// floorBeside measures a floor with the load of a sample of this round and adds it to the same
// section: as many watchers, as many events a second, as many events in a write, and as many bytes.
func (p *program) floorBeside(ctx context.Context, bench string, x report.Sample) error {
	get := func(unit string) float64 {
		v, _ := x.Get(unit)
		return v
	}
	clients, err := strconv.Atoi(x.Axis("clients"))
	if err != nil || clients == 0 || x.Round != p.round || x.Err != nil {
		return err
	}
	streams, _ := strconv.Atoi(x.Axis("streams")) // "" is HTTP/1.1
	st, err := server.NewFloorStage(ctx, x.Peer, p.opts.Objects, int(get(report.UnitBytes)), streams)
	if err != nil {
		return err
	}
	defer st.Stop()
	st.Floor.Batch = max(get(report.UnitBatch), 1)
	l := demand{clients: clients, rate: load.Rate(get(report.UnitWrites))}
	if streams > 0 {
		l.h2 = &load.Multiplex{Streams: streams, Flow: load.LargeSteps}
	}
	twin := report.Sample{Peer: st.Peer, Axes: x.Axes}
	twin.Metrics, _, twin.Err = p.under(ctx, st, l)
	return p.note(ctx, st, bench, twin)
}
