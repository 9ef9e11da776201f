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

func TestScannerAllocs(t *testing.T) {
	f := func(r representation, file string, fields []framing.Field, most float64) {
		t.Helper()
		for _, c := range r.captured(t) {
			if c.file != file {
				continue
			}
			event := c.events("all")[2]
			if r.encoding == framing.Protobuf {
				event = event[4:]
			}
			if n := allocs(r.encoding, fields, event); n > most {
				t.Errorf("%s: %v allocations, want at most %v", c, n, most)
			}
		}
	}
	f(asProtobuf, "configmap", nil, 4)
	f(asProtobuf, "pod", podFields, 5)
	f(asJSON, "configmap", podFields, 6)
	f(asJSON, "pod", podFields, 6)
	f(asCBOR, "pod", podFields, 7)
}

// The parts that differ between responses cost no copy of the shared parts.
func TestGzipMemberAllocs(t *testing.T) {
	head, items, tail := framing.Stored([]byte("[")), deflate(1, sample(t, 1<<20)), framing.Stored([]byte("]"))
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
	for _, trim := range []*framing.Trim{framing.Lean, framing.NewTrim(dropping("spec", "data", "roleRef"))} {
		o.AppendTrimmed(dst, trim) // which finds the fields
		if n := testing.AllocsPerRun(100, func() { o.AppendTrimmed(dst, trim) }); n != 0 {
			t.Errorf("%v allocations for an object, want 0", n)
		}
		if n := testing.AllocsPerRun(100, func() { form.AppendItem(dst, trim, o, false) }); n != 0 {
			t.Errorf("%v allocations for an item, want 0", n)
		}
	}
}
