package fanout_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// Changes from before the history can be fetched for a client that resumes from there, but not with a
// gap. TestSearchModel compares what clients are sent.
func TestExtend(t *testing.T) {
	w := newWorld(t, roomy)
	x := named("x", "l", "1")
	w.cache.Reset([]*framing.Object{object(x.at(107))}, 110, fanout.Ending{Reason: fanout.Backwards})
	w.begins(everything(t), resume(105), fanout.ErrExpired)
	if w.cache.Extend(nil, 105, 109) || w.cache.Extend(nil, 110, 110) {
		t.Error("extended with a gap, or backwards")
	}
	if !w.cache.Extend([]framing.Event{event("MODIFIED", x.at(107))}, 105, 110) {
		t.Fatal("not extended")
	}
	if s := w.cache.Stats(); s.Oldest != 105 || s.HistoryEvents != 1 {
		t.Errorf("stats %+v", s)
	}
	w.begins(everything(t), resume(104), fanout.ErrExpired)
	for from, want := range map[uint64]error{105: fanout.ErrPreviousUnknown, 107: nil} {
		w.begins(sel(t, "", "l", ""), resume(from), want)
		w.begins(sel(t, "", "", "spec.node=n1"), resume(from), want)
	}
	// Further back, the version before is known.
	if !w.cache.Extend([]framing.Event{event("ADDED", x.at(103))}, 101, 105) {
		t.Fatal("not extended further")
	}
	if keys, _ := w.cache.UnresolvedKeys(); len(keys) > 0 {
		t.Errorf("unknown are %q", keys)
	}
	w.begins(sel(t, "", "l", ""), resume(101), nil)
}

// Once the versions from before the history are known, the history decides what clients with
// selectors get.
func TestResolvePrevious(t *testing.T) {
	f := func(before thing, want string) {
		t.Helper()
		w := newWorld(t, roomy)
		with, without, y := named("x", "m", ""), named("x"), named("y", "m", "")
		w.cache.Reset([]*framing.Object{object(without.at(108))}, 110, fanout.Ending{Reason: fanout.Backwards})
		replayed := []framing.Event{event("MODIFIED", with.at(106)), event("MODIFIED", without.at(107)),
			event("DELETED", without.at(108)), event("DELETED", y.at(109))}
		if !w.cache.Extend(replayed, 105, 110) {
			t.Fatal("not extended")
		}
		w.begins(sel(t, "", "m", ""), resume(105), fanout.ErrPreviousUnknown)
		if keys, after := w.cache.UnresolvedKeys(); len(keys) != 1 || keys[0] != "a/x" || after != 105 {
			t.Errorf("unknown are %q, behind %d", keys, after)
		}
		if w.cache.ResolvePrevious(nil, 105) ||
			w.cache.ResolvePrevious([]*framing.Object{object(before.at(100))}, 104) {
			t.Error("decided by nothing, or by another resourceVersion's versions")
		}
		if !w.cache.ResolvePrevious([]*framing.Object{object(before.at(100))}, 105) {
			t.Error("not decided")
		}
		if keys, _ := w.cache.UnresolvedKeys(); len(keys) != 0 {
			t.Errorf("unknown are %q", keys)
		}
		_, r := w.client(sel(t, "", "m", ""), resume(105))
		r.wantLines(t, line(want, with.at(106)), line("DELETED", with.at(107)), line("DELETED", y.at(109)))
	}
	f(named("x", "m", ""), "MODIFIED")
	f(named("x"), "ADDED")
}

// However often it is extended, the history keeps its bounds, and drops the fetched changes first.
func TestExtendBounds(t *testing.T) {
	limits := roomy
	limits.HistoryEvents, limits.HistoryBytes = 10, 20_000
	w := newWorld(t, limits)
	w.rv = 1_000_000
	w.cache.Advance(w.rv)
	events := func(after uint64, n int, data int) (evs []framing.Event) {
		for i := range n {
			o := thing{namespace: "a", name: fmt.Sprint("r", i), data: strings.Repeat("d", data)}
			evs = append(evs, event("ADDED", o.at(after+1+uint64(i))))
		}
		return evs
	}
	if w.cache.Extend(events(50, 11, 0), 50, 100) {
		t.Error("extended by more events than fit")
	}
	if w.cache.Extend(events(50, 5, 4000), 50, 100) {
		t.Error("extended by more bytes than fit")
	}
	if !w.cache.Extend(events(50, 5, 1800), 50, 100) || w.cache.Extend(events(20, 6, 0), 20, 50) {
		t.Error("extended twice by more events than fit, or not once")
	}
	if w.cache.Extend(events(20, 5, 2400), 20, 50) {
		t.Error("extended twice by more bytes than fit")
	}
	s := w.cache.Stats()
	if s.HistoryEvents != 5 || s.Oldest != 50 || s.HistoryBytes > limits.HistoryBytes || s.HistoryBytes < 5*1800 {
		t.Errorf("stats %+v", s)
	}
	for i := range 11 {
		w.put(named(fmt.Sprint(i)))
	}
	if s := w.cache.Stats(); s.HistoryEvents != 10 || s.Oldest != 1_000_001 {
		t.Errorf("stats %+v, want the replayed events to be gone", s)
	}
}

// The version before a fetched change is not known, and sometimes need not be.
func TestExtendUnknown(t *testing.T) {
	x := named("x", "l", "1")
	for _, c := range []struct {
		typ, namespace, ls, fs string
		sent, unknown          bool
	}{
		// Namespace and name never change, so the version before had the same.
		{"MODIFIED", "", "", "", true, false},
		{"MODIFIED", "a", "", "", true, false},
		{"MODIFIED", "b", "", "", false, false},
		{"MODIFIED", "", "", "metadata.name=x", true, false},
		{"MODIFIED", "", "", "metadata.name!=x", false, false},
		{"MODIFIED", "", "", "metadata.namespace!=b", true, false},
		{"MODIFIED", "b", "l=1", "", false, false},
		// A deletion carries the version before.
		{"DELETED", "", "l=1", "", true, false},
		{"DELETED", "", "l=2", "", false, false},
		{"DELETED", "", "", "spec.node!=x", true, false},
		// Otherwise only the unknown version could decide.
		{"MODIFIED", "", "l=1", "", false, true},
		{"MODIFIED", "", "l=2", "", false, true},
		{"MODIFIED", "", "!l", "", false, true},
		{"MODIFIED", "", "", "spec.node=", false, true},
	} {
		w := bareWorld(t, roomy, newFlusher(1), 110)
		if !w.cache.Extend([]framing.Event{event(c.typ, x.at(109))}, 105, 110) {
			t.Fatal("not extended")
		}
		sub, err := w.cache.Subscribe(fanout.Request{Filter: sel(t, c.namespace, c.ls, c.fs).filter(t), Start: fanout.FromVersion,
			ResourceVersion: 105, Timeout: time.Hour})
		if errors.Is(err, fanout.ErrPreviousUnknown) != c.unknown {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			want := []string{line(c.typ, x.at(109))}
			wire, _, _ := sub.Fill()
			diff(t, unchunk(t, wire), want[:map[bool]int{true: 1}[c.sent]])
		}
	}
}
