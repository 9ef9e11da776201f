//go:build linux

package main

import (
	"context"
	"slices"
)

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

// sliceLoadOf returns the load of a sample.
func sliceLoadOf(x *sample) floorLoad {
	load := floorLoadOf(x)
	watchers, _ := x.get(unitWatchers)
	load.watchers = int(watchers)
	return load
}

// slicesFloor measures a floor with the load of each twin. Events have size bytes before compression.
func (p *program) slicesFloor(ctx context.Context, coll *collection, size int) error {
	for _, twin := range p.sections[partSlices].sliceTwins(p.round) {
		x := sample{peer: floorTLS, axes: twin.axes}
		r, err := p.underFloorLoad(ctx, coll, sliceLoadOf(&twin))
		if x.err = err; err == nil {
			x.metrics = sliceMetrics(r, size)
		}
		if err := p.note(ctx, nil, partSlices, x, 9); err != nil {
			return err
		}
	}
	return nil
}
