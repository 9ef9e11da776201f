package http2

import (
	"maps"
	"slices"
	"testing"
	"unsafe"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// The open streams of a connection are those of a map, in the order of their numbers.
func TestOpenStreams(t *testing.T) {
	rng := steady.Rand(t)
	want := make(map[uint32]*stream)
	var got openStreams
	for id := uint32(1); id < 2000; id += 2 {
		st := &stream{id: id}
		want[id] = st
		got.add(st)
		for len(want) > 0 && rng.IntN(10) < 5 {
			some := slices.Collect(maps.Values(want))
			gone := some[rng.IntN(len(some))]
			delete(want, gone.id)
			got.remove(gone)
			got.remove(gone) // has no effect
		}
		if len(got) != len(want) || !slices.IsSortedFunc(got, func(a, b *stream) int { return int(a.id) - int(b.id) }) {
			t.Fatalf("%d streams, want %d in order", len(got), len(want))
		}
		for id := range id + 2 {
			if got.find(id) != want[id] {
				t.Fatalf("stream %d: %v, want %v", id, got.find(id), want[id])
			}
		}
	}
}

// A stream takes no more memory than its comment demands, because there may be very many.
func TestStreamSize(t *testing.T) {
	if got := unsafe.Sizeof(stream{}); got > 80 {
		t.Errorf("%d bytes", got)
	}
}
