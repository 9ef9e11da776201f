//go:build linux

package main

import "testing"

// A floor gets the load of watchfan's cases over HTTP/2 that it can repeat, in the same round.
func TestHTTP2Twins(t *testing.T) {
	o := defaults()
	s := http2Section(o)
	for _, p := range []peer{direct, watchfanTLS} {
		for round := range 2 {
			for _, c := range o.http2Cases() {
				s.add(sample{peer: p, round: round, axes: c.axes(),
					metrics: []metric{{unitWrites, 320}, {unitBatch, 2.5}, {unitBytes, 1869}}})
			}
		}
	}
	s.add(sample{peer: watchfanTLS, round: 1, axes: o.http2Cases()[0].axes(), err: errEnded})
	var got []floorLoad
	for _, x := range s.http2Twins(1) {
		load, err := http2LoadOf(&x)
		if x.peer != watchfanTLS || x.round != 1 || err != nil {
			t.Errorf("%s of round %d: %v", s.name(&x), x.round, err)
		}
		got = append(got, load)
	}
	shared := floorLoad{watchers: o.HTTP2Clients, streams: o.Streams, rate: 320, batch: 2.5, bytes: 1869}
	single := shared
	single.streams = 1
	if want := [...]floorLoad{shared, single, shared}; len(got) != len(want) || [3]floorLoad(got) != want {
		t.Errorf("the loads are %v, want %v", got, want)
	}
}
