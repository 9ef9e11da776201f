//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A source makes the events that watchers receive.
type source interface {
	// run makes rate events a second until ctx ends. With a rate of 0 it makes as many as the
	// watchers of f take.
	run(ctx context.Context, f *fleet, rate float64) error
	book() *ledger
}

// A stage is the servers, the objects and the writer for one peer. They are fresh for each session,
// because no peer may inherit another's heap or watchers. The floor has neither cluster nor writer.
type stage struct {
	peer    peer
	cluster *cluster
	proxy   *proxy // nil without a proxy
	floor   *floor // nil unless it is the peer
	coll    *collection
	writer  *writer
}

// newStage starts a stage. stop must be called.
func newStage(ctx context.Context, o *Options, p peer) (*stage, error) {
	s := &stage{peer: p, coll: newCollection(objectConfigMaps, o.Objects, 0)}
	if err := s.start(ctx, o); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *stage) start(ctx context.Context, o *Options) (err error) {
	if s.cluster, err = startCluster(ctx, o.Devcluster); err != nil {
		return err
	}
	s.writer = newWriter(s.cluster.endpoint, s.coll, newAcks(), o.Writers, o.behind(s.peer))
	if err = s.writer.create(ctx, o.EventSize, nil); err != nil {
		return err
	}
	if s.peer != direct {
		s.proxy, err = startProxy(ctx, o.Watchfan, s.cluster, "--flush-interval="+o.FlushInterval.String())
	}
	return err
}

// newFloorStage starts a floor of n objects, beside a peer, with events of size bytes. Its HTTP/2
// connections have streams watches each; 0 is HTTP/1.1. stop must be called.
func newFloorStage(ctx context.Context, beside peer, n, size, streams int) (*stage, error) {
	f, err := startFloor(ctx, beside.tls, n, size, streams)
	if err != nil {
		return nil, err
	}
	p := peer{floorBare.name, beside.tls}
	return &stage{peer: p, floor: f, coll: newCollection(objectConfigMaps, n, 0)}, nil
}

// stop ends the servers, the proxy first.
func (s *stage) stop() {
	if s.writer != nil {
		s.writer.client.CloseIdleConnections()
	}
	if s.proxy != nil {
		s.proxy.child.stop()
	}
	if s.cluster != nil {
		s.cluster.stop()
	}
	if s.floor != nil {
		s.floor.stop()
	}
}

func (s *stage) source() source {
	if s.floor != nil {
		return s.floor
	}
	return s.writer
}

func (s *stage) book() *ledger { return s.source().book() }

// processes returns the servers.
func (s *stage) processes() (all []measure.Process) {
	if s.floor != nil {
		return []measure.Process{s.floor.process}
	}
	all = append(all, s.cluster.processes...)
	if s.proxy != nil {
		all = append(all, s.proxy.process)
	}
	return all
}

// endpoint returns the address for the peer's watchers.
func (s *stage) endpoint() endpoint {
	switch {
	case s.floor != nil:
		return s.floor.endpoint
	case s.peer == direct:
		return s.cluster.endpoint
	}
	return s.proxy.endpoint(s.peer)
}

// newFleet returns a fleet without watchers.
func (s *stage) newFleet(filters []filter, nice int) (*fleet, error) {
	return newFleet(s.endpoint(), s.coll, filters, s.book().acks, nice)
}

// alive reports an error if a server has ended.
func (s *stage) alive() (err error) {
	if s.cluster != nil {
		err = s.cluster.child.alive()
	}
	if s.proxy != nil {
		err = errors.Join(err, s.proxy.child.alive())
	}
	if s.floor != nil {
		err = errors.Join(err, s.floor.child.alive())
	}
	return err
}

// rest waits until the servers are at rest, and returns what they use then. It collects their
// garbage first. A server is at rest if in one second all servers together use less than a tenth of
// a core, and each changes its resident memory by less than half a percent. After 15 s rest returns
// in any case.
func (s *stage) rest(ctx context.Context) (measure.Costs, error) {
	const step, patience = time.Second, 15 * time.Second
	if err := s.collectGarbage(ctx); err != nil {
		return measure.Costs{}, err
	}
	before, err := measure.ReadCosts(s.processes())
	for start := time.Now(); err == nil; {
		if err = sleep(ctx, step); err != nil {
			break
		}
		var now measure.Costs
		if now, err = measure.ReadCosts(s.processes()); err != nil {
			break
		}
		quiet := true
		var used time.Duration
		for name, cpu := range now.CPUSince(before) {
			used += cpu
			change := float64(now.RSS[name]-before.RSS[name]) / float64(before.RSS[name])
			quiet = quiet && change < 0.005 && change > -0.005
		}
		if quiet && used < step/10 || time.Since(start) > patience {
			return now, nil
		}
		before = now
	}
	return measure.Costs{}, errors.Join(err, s.alive())
}

// collectGarbage makes kube-apiserver and the proxy collect their garbage. It does so twice,
// because finalizers and pools hold memory until the second collection.
func (s *stage) collectGarbage(ctx context.Context) error {
	for range 2 {
		if _, err := s.cluster.get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return err
		}
		if s.proxy != nil {
			if _, err := s.proxy.admin.get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
				return err
			}
		}
	}
	return nil
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// load runs the source in the background. stop ends it, waits for the answer to the last write, and
// returns the error that ended the source earlier, if any.
func (s *stage) load(ctx context.Context, f *fleet, r rate) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	errc := make(chan error, 1)
	go func() { errc <- s.source().run(ctx, f, float64(r)) }()
	return func() error {
		cancel()
		if err := <-errc; err != nil {
			return fmt.Errorf("writer: %w", err)
		}
		return nil
	}
}

// inParallel calls do for each number from first up to n, eight at a time. It returns the first
// error, or the one that ended ctx, when all calls have returned.
func inParallel(ctx context.Context, first, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	next.Store(int64(first))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
