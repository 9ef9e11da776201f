package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func fanoutSection() *report.Section {
	return &report.Section{
		Bench: "Fanout",
		Title: "Traffic",
		Note: "writev = the floor, a server that only writes the same events at the same rate. " +
			"Writes without any watcher, clients=0, are what to subtract where a case is about few deliveries.",
		Columns: []report.Column{
			report.Col("writes/s", report.UnitWrites, 1), report.Col("deliveries/s", report.UnitDeliveries, 1), report.Col("CPU µs/delivery", report.UnitCPU, 1e-3),
			report.Col("deliveries/core-s", report.UnitPerCore, 1), report.Col("events/write", report.UnitBatch, 1), report.Col("all servers", report.UnitAllCPU, 1e-3),
			report.Col("net of writes", report.UnitNetCPU, 1e-3), report.Col("p50 ms", report.UnitP50, 1e-6), report.Col("p99 ms", report.UnitP99, 1e-6),
			report.Col("p99.9 ms", report.UnitP999, 1e-6), report.Col("CPU µs/write", report.UnitWriteCPU, 1e-3),
		},
		Costs: 10,
	}
}

func idleSection() *report.Section {
	return &report.Section{
		Bench:   "Idle",
		Title:   "Memory per idle watcher: resident in the server",
		Columns: []report.Column{report.Col("KiB/watcher", report.UnitMemory, 1.0/1024)},
		Costs:   1,
	}
}

// measureTraffic measures the peers in turn, to spread a change of the machine's speed over all. The floors
// come last in each round, because they repeat the rates of the others.
func (p *program) measureTraffic(ctx context.Context) error {
	for p.round = 1; p.round <= p.opts.Rounds; p.round++ {
		for _, peer := range p.opts.Peers {
			if err := p.traffic(ctx, peer); err != nil {
				return fmt.Errorf("%v: %w", peer, err)
			}
		}
		if err := p.trafficFloors(ctx); err != nil {
			return err
		}
	}
	return nil
}

// traffic measures all cases of one peer, with servers of its own, the most watchers first. A case
// that fails is a sample with an error, and the next case starts with new watchers. An error means
// that the peer could not continue.
func (p *program) traffic(ctx context.Context, peer report.Peer) error {
	p.say("starting servers for %v", peer)
	st, err := newStage(ctx, p.opts, peer)
	if err != nil {
		return err
	}
	defer st.Stop()
	s := p.session(st)
	defer s.disband()
	for i, clients := range p.opts.Clients {
		if clients == 0 && peer != report.Direct {
			continue // writes do not pass through the proxy
		}
		if i == 0 && clients > 1 {
			x := report.Sample{Peer: peer, Axes: report.Axes("clients", clients)}
			if x.Metrics, err = s.idle(ctx, demand{clients: clients}); err != nil {
				return err
			}
			if err := p.note(ctx, st, "Idle", x); err != nil {
				return err
			}
		}
		for _, r := range p.opts.Rates {
			if err := s.gather(ctx, clients); err != nil {
				return err
			}
			x := report.Sample{Peer: peer, Axes: report.Axes("clients", clients, "rate", p.opts.offered(r, clients))}
			x.Metrics, x.Err = s.measure(ctx, p.opts.offered(r, clients))
			if err := p.note(ctx, st, "Fanout", x); err != nil {
				return err
			}
		}
	}
	return nil
}

// newStage starts the servers of one peer, with the objects and their writer.
func newStage(ctx context.Context, o *Options, p report.Peer) (*server.Stage, error) {
	cluster, err := server.StartCluster(ctx, o.Devcluster)
	if err != nil {
		return nil, err
	}
	s := cluster.Stage(load.NewCollection(load.ObjectConfigMaps, o.Objects, 0), o.Writers, o.Behind)
	s.Peer = p
	if err = s.Writer.Create(ctx, o.EventSize, nil); err == nil && p != report.Direct {
		s.Proxy, err = server.StartProxy(ctx, o.Watchfan, cluster)
	}
	if err != nil {
		s.Stop()
	}
	return s, err
}

// trafficFloors measures a floor with the load of each of watchfan's cases of this round, with the
// most watchers or with all numbers of them.
func (p *program) trafficFloors(ctx context.Context) error {
	most := strconv.Itoa(slices.Max(p.opts.Clients))
	for _, x := range p.section("Fanout").Samples {
		if x.Peer.Name == report.WatchfanTLS.Name && (p.opts.AllFloors || x.Axis("clients") == most) {
			if err := p.floorBeside(ctx, "Fanout", x); err != nil {
				return err
			}
		}
	}
	return nil
}

// subtractWrites adds to the samples of paced cases the CPU time of all servers, less that for the
// same writes in the same round without a watcher. An unpaced case has no such twin, because its
// watchers set the pace.
func subtractWrites(s *report.Section) {
	for _, x := range s.Samples {
		for _, twin := range s.Samples {
			alone, ok := twin.Get(report.UnitWriteCPU)
			if !ok || twin.Round != x.Round || twin.Axis("rate") != x.Axis("rate") || x.Axis("rate") == load.Unpaced.String() ||
				x.Peer.Name == report.FloorBare.Name {
				continue
			}
			if all, ok := x.Get(report.UnitAllCPU); ok {
				writes, _ := x.Get(report.UnitWrites)
				deliveries, _ := x.Get(report.UnitDeliveries)
				x.Metrics = append(x.Metrics, report.M(report.UnitNetCPU, all-alone*writes/deliveries))
			}
		}
	}
}

// floorBeside measures a floor with the load of a sample of this round and adds it to the same
// section: as many watchers, as many events a second, as many events in a write, and as many bytes.
func (p *program) floorBeside(ctx context.Context, bench string, x *report.Sample) error {
	get := func(unit string) float64 {
		v, _ := x.Get(unit)
		return v
	}
	clients, err := strconv.Atoi(x.Axis("clients"))
	if err != nil || clients == 0 || x.Round != p.round || x.Err != nil {
		return err
	}
	streams, _ := strconv.Atoi(x.Axis("streams")) // "" is HTTP/1.1
	st, err := server.NewFloorStage(x.Peer, p.opts.Objects, int(get(report.UnitBytes)), streams)
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
