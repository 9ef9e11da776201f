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

// Changes from before the history can be fetched for a client that resumes from there.
func TestExtend(t *testing.T) {
	w := newWorld(t, roomy)
	x, y := named("x", "l", "1"), named("y", "l", "1")
	// A lane that was filled at 110, with older objects.
	w.cache.Reset([]*framing.Object{object(y.at(90)), object(x.at(107))}, 110, fanout.Ending{Reason: fanout.Backwards})
	w.rv, w.things, w.history = 110, map[string]*thing{"a/x": x.at(107), "a/y": y.at(90)}, nil
	w.put(named("x"))
	w.begins(everything(t), resume(105), fanout.ErrExpired)
	if w.cache.Extend(nil, 105, 109) || w.cache.Extend(nil, 110, 110) {
		t.Error("extended with a gap, or backwards")
	}
	// From 105 on. The replay does not know the version of x as of 105, only what its changes made
	// of it.
	x2 := named("x", "l", "1", "m", "")
	z := named("z", "l", "1")
	replayed := []framing.Event{event("MODIFIED", x2.at(106)), event("MODIFIED", x.at(107)), event("ADDED", z.at(108)),
		event("DELETED", z.at(109))}
	if !w.cache.Extend(replayed, 105, 110) {
		t.Fatal("not extended")
	}
	if s := w.cache.Stats(); s.Oldest != 105 || s.HistoryEvents != 5 {
		t.Errorf("stats %+v", s)
	}
	w.begins(everything(t), resume(104), fanout.ErrExpired)
	w.begins(sel(t, "", "m", ""), resume(105), fanout.ErrPreviousUnknown)
	w.begins(sel(t, "", "", "spec.node=n1"), resume(105), fanout.ErrPreviousUnknown)

	rest := w.since(everything(t), 110)
	_, all := w.client(everything(t), resume(105))
	all.wantLines(t, append([]string{
		line("MODIFIED", x2.at(106)), line("MODIFIED", x.at(107)), line("ADDED", z.at(108)), line("DELETED", z.at(109)),
	}, rest...)...)
	_, one := w.client(sel(t, "", "", "metadata.name=z"),
		resume(105))
	one.wantLines(t, line("ADDED", z.at(108)), line("DELETED", z.at(109)))
	_, decidable := w.client(sel(t, "", "m", ""), resume(106))
	decidable.wantLines(t, line("DELETED", x2.at(107)))
	_, middle := w.client(everything(t), resume(108))
	middle.wantLines(t, append([]string{line("DELETED", z.at(109))}, rest...)...)

	// Further back, before the extension.
	if !w.cache.Extend([]framing.Event{event("ADDED", x.at(103))}, 101, 105) {
		t.Fatal("not extended further")
	}
	_, further := w.client(everything(t), resume(101))
	further.wantLines(t, append([]string{line("ADDED", x.at(103))}, all.lines(t)...)...)
	// Now the version before x's first change is known too.
	if keys, _ := w.cache.UnresolvedKeys(); len(keys) > 0 {
		t.Errorf("unknown are %q", keys)
	}
	for _, from := range []uint64{101, 105} {
		_, settled := w.client(sel(t, "", "m", ""), resume(from))
		settled.wantLines(t, line("ADDED", x2.at(106)), line("DELETED", x2.at(107)))
	}
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
