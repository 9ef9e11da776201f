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

// The parts of lean and trimmed items cost nothing but their slice, in JSON.
func TestTrimmedItemAllocs(t *testing.T) {
	form, _, err := framing.ParseListForm(framing.JSON,
		[]byte(`{"apiVersion":"v1","items":[],"kind":"PodList","metadata":{"continue":"","resourceVersion":"7"}}`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := scan(t, readTestdata(t)[1].events("all")[0]).Object
	dst := make([][]byte, 0, 16)
	for _, trim := range []*framing.Trim{framing.Lean, framing.NewTrim(framing.Drop{Fields: [][]string{{"spec"}, {"data"}, {"roleRef"}}})} {
		o.AppendTrimmed(dst, trim) // which finds the fields
		if n := testing.AllocsPerRun(100, func() { o.AppendTrimmed(dst, trim) }); n != 0 {
			t.Errorf("%v allocations for an object, want 0", n)
		}
		if n := testing.AllocsPerRun(100, func() { form.AppendTrimmedItem(dst, trim, o, false) }); n > 1 { // its beginning
			t.Errorf("%v allocations for an item, want 1", n)
		}
	}
}
