//go:build linux

package main

import (
	"context"
	"slices"
	"strconv"
)

// http2Twins returns the samples of a round to compare a floor with: watchfan's over HTTP/2, without
// compression, and with clients that give windows back seldom. A floor reads no windows.
func (s *section) http2Twins(round int) (twins []sample) {
	for _, x := range s.samples {
		is := func(name, value string) bool { return slices.Contains(x.axes, axis{name, value}) }
		if x.peer == watchfanTLS && x.round == round && x.err == nil && is("protocol", "h2") && is("asked", "identity") &&
			is("windows", "seldom") && !is("rate", "idle") {
			twins = append(twins, x)
		}
	}
	return twins
}

// http2LoadOf returns the load of a sample.
func http2LoadOf(x *sample) (load floorLoad, err error) {
	load = floorLoadOf(x)
	for _, a := range x.axes {
		switch a.name {
		case "clients":
			load.watchers, err = strconv.Atoi(a.value)
		case "streams":
			load.streams, err = strconv.Atoi(a.value)
		}
		if err != nil {
			return load, err
		}
	}
	return load, nil
}

// http2Floor measures a floor with the load of each twin.
func (p *program) http2Floor(ctx context.Context, coll *collection) error {
	for _, twin := range p.sections[partHTTP2].http2Twins(p.round) {
		load, err := http2LoadOf(&twin)
		if err != nil {
			return err
		}
		x := sample{peer: floorTLS, axes: twin.axes}
		r, err := p.underFloorLoad(ctx, coll, load)
		if x.err = err; err == nil {
			x.metrics = r.metrics()
		}
		if err := p.note(ctx, nil, partHTTP2, x, 8); err != nil {
			return err
		}
	}
	return nil
}
