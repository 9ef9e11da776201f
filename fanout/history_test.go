package fanout_test

import (
	"errors"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// The history keeps the latest changes, as many as its window and its bounds allow. A client resumes
// from where it begins or later, and gets the changes after that.
func TestHistoryModel(t *testing.T) {
	type kept struct {
		line  string
		rv    uint64
		bytes int64
		at    time.Duration // since the beginning
	}
	rng := steady.Rand(t)
	var grown, byCount, byBytes, expired int
	for range 80 {
		limits := roomy
		limits.HistoryEvents = []int{1, 5, 100, 128, 200, 300, 1000}[rng.IntN(7)]
		limits.HistoryBytes = []int64{1, 20_000, 1 << 30, 1 << 30}[rng.IntN(4)]
		w := bareWorld(t, limits, newFlusher(1), 100)
		var changes []kept
		capacity, oldest, bytes := min(limits.HistoryEvents, 128), w.rv, int64(0)
		forget := func() { oldest, bytes, changes = changes[0].rv, bytes-changes[0].bytes, changes[1:] }
		began, at, pace := time.Now(), time.Duration(0), []time.Duration{0, 400 * time.Millisecond, time.Minute}[rng.IntN(3)]
		for range 500 {
			w.rv += 1 + uint64(rng.IntN(3))
			at += pace
			o, typ := randomThing(rng), "MODIFIED"
			if w.things[o.key()] == nil {
				typ = "ADDED"
			}
			w.things[o.key()] = &o
			ev := event(typ, o.at(w.rv))
			switch {
			case len(changes) < capacity:
			case capacity < limits.HistoryEvents && at-changes[0].at < fanout.Window:
				capacity = min(2*capacity, limits.HistoryEvents)
				grown++
			default:
				forget()
				byCount++
			}
			changes, bytes = append(changes, kept{line(typ, o.at(w.rv)), w.rv, int64(ev.Object.Size()), at}), bytes+int64(ev.Object.Size())
			for ; bytes > limits.HistoryBytes && len(changes) > 1; byBytes++ {
				forget()
			}
			if err := w.cache.Apply(ev, began.Add(at)); err != nil {
				t.Fatal(err)
			}
			if s := w.cache.Stats(); s.HistoryEvents != len(changes) || s.HistoryBytes != bytes || s.Oldest != oldest {
				t.Fatalf("%+v, want %d changes of %d bytes behind %d", s, len(changes), bytes, oldest)
			}
			if rng.IntN(10) > 0 {
				continue
			}
			from := oldest - 1 + rng.Uint64N(w.rv-oldest+2)
			sub, err := w.cache.Subscribe(fanout.Request{Filter: everything(t).filter(t), Start: fanout.FromVersion,
				ResourceVersion: from, Timeout: time.Hour})
			if errors.Is(err, fanout.ErrExpired) != (from < oldest) {
				t.Fatalf("from %d, oldest %d: %v", from, oldest, err)
			}
			if err != nil {
				expired++
				continue
			}
			var want []string
			for _, c := range changes {
				if c.rv > from {
					want = append(want, c.line)
				}
			}
			wire, _, _ := sub.Fill()
			diff(t, unchunk(t, wire), want)
			sub.Cancel()
		}
	}
	if grown == 0 || byCount == 0 || byBytes == 0 || expired == 0 {
		t.Errorf("not everything happened: grown %d, forgot by count %d, by bytes %d, expired %d", grown, byCount, byBytes, expired)
	}
}
