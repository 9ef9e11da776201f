//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

func fanoutSection() *section {
	return &section{
		bench: "Fanout",
		title: "Traffic",
		note: "writev = the floor, a server that only writes the same events at the same rate. " +
			"Writes without any watcher, clients=0, are what to subtract where a case is about few deliveries.",
		columns: []column{
			{"writes/s", unitWrites, 1},
			{"deliveries/s", unitDeliveries, 1},
			{"CPU µs/delivery", unitCPU, 1e-3},
			{"deliveries/core-s", unitPerCore, 1},
			{"events/write", unitBatch, 1},
			{"all servers", unitAllCPU, 1e-3},
			{"net of writes", unitNetCPU, 1e-3},
			{"p50 ms", unitP50, 1e-6},
			{"p99 ms", unitP99, 1e-6},
			{"p99.9 ms", unitP999, 1e-6},
			{"CPU µs/write", unitWriteCPU, 1e-3},
		},
		costs: 10,
	}
}

func idleSection() *section {
	return &section{
		bench:   "Idle",
		title:   "Memory per idle watcher: resident in the server",
		columns: []column{{"KiB/watcher", unitMemory, 1.0 / 1024}},
		costs:   1,
	}
}

// measureTraffic measures the peers in the order A B C, A B C, …, to spread a change of the
// machine's speed over all. The floors come last in each round, because they repeat the rates of the
// others.
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
func (p *program) traffic(ctx context.Context, peer peer) error {
	p.say("starting servers for %v", peer)
	st, err := newStage(ctx, p.opts, peer)
	if err != nil {
		return err
	}
	defer st.stop()
	s := p.session(st)
	defer s.disband()
	for i, clients := range p.opts.Clients {
		if clients == 0 && peer != direct {
			continue // writes do not pass through the proxy
		}
		if i == 0 && clients > 1 {
			if err := s.assemble(load{}); err != nil {
				return err
			}
			x := sample{peer: peer, axes: axes("clients", clients)}
			if x.metrics, err = s.idle(ctx, clients); err != nil {
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
			x := sample{peer: peer, axes: axes("clients", clients, "rate", p.opts.offered(r, clients))}
			x.metrics, x.err = s.measure(ctx, p.opts.offered(r, clients))
			if err := p.note(ctx, st, "Fanout", x); err != nil {
				return err
			}
		}
	}
	return nil
}

// trafficFloors measures a floor with the load of each of watchfan's cases of this round, with the
// most watchers or with all numbers of them.
func (p *program) trafficFloors(ctx context.Context) error {
	most := strconv.Itoa(slices.Max(p.opts.Clients))
	for _, x := range p.section("Fanout").samples {
		if x.peer.name == watchfanTLS.name && (p.opts.AllFloors || x.axis("clients") == most) {
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
func subtractWrites(s *section) {
	for i := range s.samples {
		x := &s.samples[i]
		for j := range s.samples {
			twin := &s.samples[j]
			alone, ok := twin.get(unitWriteCPU)
			if !ok || twin.round != x.round || twin.axis("rate") != x.axis("rate") || x.axis("rate") == unpaced.String() ||
				x.peer.name == floorBare.name {
				continue
			}
			if all, ok := x.get(unitAllCPU); ok {
				writes, _ := x.get(unitWrites)
				deliveries, _ := x.get(unitDeliveries)
				x.metrics = append(x.metrics, metric{unitNetCPU, all - alone*writes/deliveries})
			}
		}
	}
}
