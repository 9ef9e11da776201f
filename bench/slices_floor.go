//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
)

// A sliceLoad is what watchfan has written in a case of the slices part.
type sliceLoad struct {
	watchers int
	rate     rate    // of writes
	batch    float64 // events in one write to a watcher, at least 1
	bytes    int     // of an event on the wire, without TLS
}

// sliceLoadOf returns the load of a sample.
func sliceLoadOf(x *sample) sliceLoad {
	get := func(unit string) float64 {
		v, _ := x.get(unit)
		return v
	}
	return sliceLoad{int(get(unitWatchers)), rate(get(unitWrites)), max(get(unitBatch), 1), int(get(unitBytes))}
}

// sliceTwins returns the samples of a round to compare a floor with: watchfan's over HTTP/1.1,
// because a floor speaks nothing else.
func (s *section) sliceTwins(round int) (twins []sample) {
	for _, x := range s.samples {
		overH1 := slices.Contains(x.axes, axis{"protocol", string(http11)})
		if x.peer == watchfanTLS && x.round == round && x.err == nil && overH1 {
			twins = append(twins, x)
		}
	}
	return twins
}

// slicesFloor measures a floor with the load of each twin. Events have size bytes before compression.
func (p *program) slicesFloor(ctx context.Context, coll *collection, size int) error {
	for _, twin := range p.sections[partSlices].sliceTwins(p.round) {
		x := sample{peer: floorTLS, axes: twin.axes}
		r, err := p.underSliceLoad(ctx, coll, sliceLoadOf(&twin))
		if x.err = err; err == nil {
			x.metrics = sliceMetrics(r, size)
		}
		if err := p.note(ctx, nil, partSlices, x, 9); err != nil {
			return err
		}
	}
	return nil
}

// underSliceLoad starts a floor and returns its figures under a load.
func (p *program) underSliceLoad(ctx context.Context, coll *collection, load sliceLoad) (result, error) {
	f, err := startFloor(ctx, true, coll.objects, load.bytes)
	if err != nil {
		return result{}, err
	}
	st := &stage{peer: floorTLS, floor: f, coll: coll}
	defer st.stop()
	f.batch = load.batch
	s := &session{stage: st, opts: p.opts, round: p.round, say: p.say}
	defer s.disband()
	if s.fleet, err = s.newFleet([]filter{everything}, p.opts.readers()); err == nil {
		err = s.fleet.grow(ctx, load.watchers, s.book().seqs)
	}
	if err != nil {
		return result{}, fmt.Errorf("%v: %w", st.peer, err)
	}
	r := s.measure(ctx, load.watchers, load.rate)
	r.batch = load.batch
	return r, r.err
}
