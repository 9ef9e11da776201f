package fanout_test

import (
	"slices"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// slowHistory is a simple history to compare with: a slice.
type slowHistory struct {
	maxEvents, capacity int
	maxBytes            int64
	events              []*fanout.Change // with the numbers from next-len(events) on
	next, after         uint64
}

func (h *slowHistory) append(e *fanout.Change, size func(*fanout.Change) int64) {
	if len(h.events) == h.capacity {
		if h.capacity < h.maxEvents && time.Duration(e.Received-h.events[0].Received) < fanout.Window {
			h.capacity = min(h.capacity*2, h.maxEvents)
		} else {
			h.forget()
		}
	}
	h.events = append(h.events, e)
	h.next++
	total := func() (n int64) {
		for _, e := range h.events {
			n += size(e)
		}
		return n
	}
	for total() > h.maxBytes && len(h.events) > 1 {
		h.forget()
	}
}

func (h *slowHistory) forget() {
	h.after = h.events[0].Object.ResourceVersion
	h.events = h.events[1:]
}

func (h *slowHistory) read(rv, end uint64, max int) (events []*fanout.Change, ok bool) {
	if rv < h.after {
		return nil, false
	}
	first := h.next - uint64(len(h.events))
	for i, e := range h.events {
		at := e.Object.ResourceVersion
		if at <= rv || first+uint64(i) >= end {
			continue
		}
		if len(events) >= max && events[len(events)-1].Object.ResourceVersion != at {
			break
		}
		events = append(events, e)
	}
	return events, true
}

func TestHistoryProperty(t *testing.T) {
	rng := steady.Rand(t)
	var grown, forgotByCount, forgotByBytes, tooOld int
	for round := range 80 {
		maxEvents := []int{1, 5, 100, 128, 200, 300, 1000}[rng.IntN(7)]
		maxBytes := []int64{1, 20_000, 1 << 30, 1 << 30}[rng.IntN(4)]
		start := uint64(rng.IntN(50))
		h := fanout.NewHistory(maxEvents, maxBytes, start)
		twin := &slowHistory{maxEvents: maxEvents, capacity: min(maxEvents, 128), maxBytes: maxBytes, after: start}
		rv, clock := start, time.Unix(1e9, 0)
		pace := []time.Duration{0, 400 * time.Millisecond, time.Minute}[rng.IntN(3)]
		for i := range 500 {
			if rng.IntN(5) > 0 || i == 0 {
				rv += 1 + uint64(rng.IntN(3)) // otherwise another deletion in the same revision
			}
			clock = clock.Add(pace)
			o := randomThing(rng)
			e := &fanout.Change{Type: framing.Added, Object: object(o.at(max(rv, 1))), ResourceVersion: max(rv, 1),
				Received: fanout.MonotonicTime(clock.UnixNano())}
			before, capacity := len(twin.events), twin.capacity
			h.Append(e)
			twin.append(e, h.Size)
			switch {
			case twin.capacity > capacity:
				grown++
			case len(twin.events) == before:
				forgotByCount++
			case len(twin.events) < before:
				forgotByBytes++
			}
			if h.Len() != len(twin.events) || h.Len() > maxEvents || h.Cap() > maxEvents || h.After() != twin.after {
				t.Fatalf("round %d: %d events in %d slots behind %d, want %d of at most %d behind %d",
					round, h.Len(), h.Cap(), h.After(), len(twin.events), maxEvents, twin.after)
			}
			if h.Bytes() > maxBytes && h.Len() > 1 {
				t.Fatalf("round %d: %d bytes, want at most %d", round, h.Bytes(), maxBytes)
			}
			from := start + uint64(rng.IntN(int(rv-start)+3))
			end := h.Next() - uint64(rng.IntN(5))
			if rng.IntN(2) == 0 {
				end = h.Next()
			}
			most := 1 + rng.IntN(70)
			got, ok := h.Read(from, end, most)
			want, wantOK := twin.read(from, end, most)
			if !slices.Equal(got, want) || ok != wantOK {
				t.Fatalf("round %d: read(%d, %d, %d) = %d events, %v, want %d, %v",
					round, from, end, most, len(got), ok, len(want), wantOK)
			}
			if !ok {
				tooOld++
			}
		}
		h.Reset(rv + 7)
		if _, ok := h.Read(rv+6, h.Next(), 9); ok || h.Len() != 0 || h.Bytes() != 0 || h.Next() != twin.next {
			t.Errorf("round %d: after a reset there are %d events, numbered up to %d", round, h.Len(), h.Next())
		}
		if events, ok := h.Read(rv+7, h.Next(), 9); !ok || len(events) != 0 {
			t.Errorf("round %d: after a reset there are %d events, %v", round, len(events), ok)
		}
	}
	if grown == 0 || forgotByCount == 0 || forgotByBytes == 0 || tooOld == 0 {
		t.Errorf("not everything happened: grown %d, forgot by count %d, by bytes %d, too old %d",
			grown, forgotByCount, forgotByBytes, tooOld)
	}
}

// Reading from the last event's resourceVersion on misses nothing and repeats nothing, even if more
// events share a resourceVersion than are read at once.
func TestHistoryReadOn(t *testing.T) {
	h := fanout.NewHistory(1000, 1<<30, 0)
	var want []*fanout.Change
	for i, n := range []int{1, 70, 1, 64, 65, 1, 1, 200} {
		for range n {
			e := &fanout.Change{Type: framing.Deleted, Object: object(&thing{name: "x", rv: uint64(i + 1)}),
				ResourceVersion: uint64(i + 1)}
			h.Append(e)
			want = append(want, e)
		}
	}
	var got []*fanout.Change
	for rv := uint64(0); ; {
		events, ok := h.Read(rv, h.Next(), 64)
		if !ok {
			t.Fatal("forgotten")
		}
		if len(events) == 0 {
			break
		}
		got = append(got, events...)
		rv = events[len(events)-1].Object.ResourceVersion
	}
	if !slices.Equal(got, want) {
		t.Errorf("read %d events, want %d", len(got), len(want))
	}
}
