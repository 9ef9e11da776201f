//go:build !race

package framing_test

// The race detector itself allocates. make unit runs these tests without it.

import (
	"math"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// allocs returns the allocations of scanning an event. Scanners hash with different seeds, and two
// strings with the same place for one scanner are allocated each time, so the best of several counts.
func allocs(encoding framing.Encoding, fields []framing.Field, event []byte) float64 {
	fewest := math.Inf(1)
	for range 8 {
		s := framing.NewScanner(encoding, fields)
		fewest = min(fewest, testing.AllocsPerRun(100, func() { _, _ = s.Event(event) }))
	}
	return fewest
}

func TestProtobufAllocs(t *testing.T) {
	f := func(file string, fields []framing.Field, most float64) {
		t.Helper()
		for _, c := range asProtobuf.captured(t) {
			if c.file != file {
				continue
			}
			event := c.events("all")[2][4:]
			if n := allocs(framing.Protobuf, fields, event); n > most {
				t.Errorf("%s: %v allocations, want at most %v", file, n, most)
			}
		}
	}
	f("configmap", nil, 4)
	f("pod", podFields, 5)
}

func TestScannerAllocs(t *testing.T) {
	f := func(file string, most float64) {
		t.Helper()
		for _, c := range readTestdata(t) {
			if c.file != file {
				continue
			}
			line := c.events("all")[2]
			if n := allocs(framing.JSON, podFields, line); n > most {
				t.Errorf("%s: %v allocations, want at most %v", file, n, most)
			}
		}
	}
	f("configmap", 6)
	f("pod", 6)
}

func TestCBORAllocs(t *testing.T) {
	for _, c := range asCBOR.captured(t) {
		if c.file != "pod" {
			continue
		}
		event := c.events("all")[2]
		if n := allocs(framing.CBOR, podFields, event); n > 7 {
			t.Errorf("%v allocations, want at most 7", n)
		}
	}
}

// The parts that differ between responses cost no copy of the shared parts.
func TestGzipMemberAllocs(t *testing.T) {
	head, items, tail := framing.Stored([]byte("[")), deflate(1, configMapEvent(1<<20)), framing.Stored([]byte("]"))
	if got := testing.AllocsPerRun(100, func() { framing.GzipMember(head, items, tail) }); got > 2 {
		t.Errorf("%v allocations, want the slice of slices and the trailer", got)
	}
}
