package fanout_test

import (
	"errors"
	"testing"

	"github.com/watchfan/watchfan/fanout"
)

// A proof holds for the state that it is about, and for states that the cache has passed.
func TestProof(t *testing.T) {
	w := newWorld(t, roomy) // at 100
	epoch := w.cache.Epoch()
	f := func(p fanout.Proof, want error) {
		t.Helper()
		for _, start := range []fanout.Start{fanout.FromNow, fanout.FromSnapshot} {
			w.begins(everything(t), fanout.Request{Start: start, Proof: p}, want)
		}
	}
	f(fanout.Proof{}, nil)
	f(fanout.Proof{Epoch: epoch, At: 100, AsOf: 110}, nil)
	f(fanout.Proof{Epoch: epoch - 1, At: 100, AsOf: 110}, fanout.ErrNotFresh) // from before a relist
	f(fanout.Proof{Epoch: epoch, At: 99, AsOf: 110}, fanout.ErrNotFresh)
	w.put(named("x"))
	f(fanout.Proof{Epoch: epoch, At: 100, AsOf: 110}, fanout.ErrNotFresh) // 101 may be one of two that undo each other
	f(fanout.Proof{Epoch: epoch, At: 101, AsOf: 110}, nil)
	w.advance(9)
	f(fanout.Proof{Epoch: epoch, At: 100, AsOf: 110}, nil) // passed
	f(fanout.Proof{Epoch: epoch, At: 100, AsOf: 111}, fanout.ErrNotFresh)
}

// Changes up to a proof's resourceVersion are in the state that was sent: each has been undone by
// then.
func TestProofSkips(t *testing.T) {
	w := newWorld(t, roomy)
	kept := w.put(named("kept"))
	p := fanout.Proof{Epoch: w.cache.Epoch(), At: kept, AsOf: kept + 2}
	_, now := w.client(everything(t), fanout.Request{Start: fanout.FromNow, Proof: p})
	_, snapshot := w.client(everything(t),
		fanout.Request{Start: fanout.FromSnapshot, Proof: p, Bookmarks: true, EndBookmark: true})
	w.put(named("undone"))
	w.del("a/undone")
	w.put(named("new"))
	want := w.since(everything(t), kept+2)
	now.wantLines(t, want...)
	snapshot.wantLines(t, append(append(w.initial(everything(t), kept), bookmark(kept+2, true)), want...)...)
}

// A state that was proved for a later resourceVersion gets that resourceVersion, and can be
// requested by it.
func TestSnapshotProved(t *testing.T) {
	w := newWorld(t, roomy)
	at := w.put(named("x"))
	p := fanout.Proof{Epoch: w.cache.Epoch(), At: at, AsOf: at + 10}
	s, err := w.cache.SnapshotProved(p)
	if err != nil || s.ResourceVersion != at+10 || len(state(s)) != 1 {
		t.Fatalf("got %v as of %d, %v", state(s), s.ResourceVersion, err)
	}
	w.advance(10)
	w.put(named("y"))
	if s, ok := w.cache.SnapshotAt(at + 10); !ok || s.ResourceVersion != at+10 || len(state(s)) != 1 {
		t.Errorf("as of what was proved: got %v as of %d, %v", state(s), s.ResourceVersion, ok)
	}
	other := fanout.Proof{Epoch: p.Epoch, At: at, AsOf: at + 100}
	if _, err := w.cache.SnapshotProved(other); !errors.Is(err, fanout.ErrNotFresh) {
		t.Errorf("a proof of another state: %v", err)
	}
	if s, err := w.cache.SnapshotProved(p); err != nil || s.ResourceVersion != w.rv || len(state(s)) != 2 {
		t.Errorf("a proof of what has been passed: got %v as of %d, %v", state(s), s.ResourceVersion, err)
	}
	w.cache.Reset(nil, w.rv, fanout.Ending{Reason: fanout.Backwards})
	if _, ok := w.cache.SnapshotAt(at + 10); ok {
		t.Error("what was proved before a reset is still served")
	}
}

// Once a client has been shown the state as of a later resourceVersion, a read that may be stale
// does not go back behind it, and one from that resourceVersion needs no further proof.
func TestSnapshotShown(t *testing.T) {
	w := newWorld(t, roomy)
	at := w.put(named("x"))
	f := func(when string, want uint64) {
		t.Helper()
		if s := w.cache.SnapshotShown(); s.ResourceVersion != want || len(state(s)) != len(state(w.cache.Snapshot())) {
			t.Errorf("%s: got %v as of %d, want %d", when, state(s), s.ResourceVersion, want)
		}
	}
	prove := func(asOf uint64) {
		t.Helper()
		p := fanout.Proof{Epoch: w.cache.Epoch(), At: w.cache.Progress(), AsOf: asOf}
		if _, err := w.cache.SnapshotProved(p); err != nil {
			t.Fatal(err)
		}
	}
	f("before any proof", at)
	prove(at + 5)
	f("after a proof", at+5)
	prove(at + 4)
	f("after an older proof", at+5)
	for i := range uint64(20) { // so many that the first page's proof is forgotten
		prove(at + 6 + i)
	}
	f("after more proofs", at+25)
	if s, ok := w.cache.SnapshotAt(at + 25); !ok || len(state(s)) != 1 {
		t.Errorf("the next page of what was shown: got %v, %t", state(s), ok)
	}
	w.put(named("y")) // at+1, which something undoes by at+25
	f("after a change", at+1)
	w.cache.Reset(nil, at+30, fanout.Ending{Reason: fanout.Backwards})
	f("after a reset", at+30)
}

// A proof in part says nothing about other reads, and a list in place of events ends what began with it.
func TestProofInPart(t *testing.T) {
	w := newWorld(t, roomy)
	at := w.put(named("x"))
	p := fanout.Proof{Epoch: w.cache.Epoch(), At: at, AsOf: at + 5, Part: true}
	if s, err := w.cache.SnapshotProved(p); err != nil || s.ResourceVersion != at+5 {
		t.Errorf("proved as of %d, %v", s.ResourceVersion, err)
	}
	if s := w.cache.SnapshotShown(); s.ResourceVersion != at {
		t.Errorf("another read is shown %d", s.ResourceVersion)
	}
	if _, ok := w.cache.SnapshotAt(at + 5); ok {
		t.Error("another read is served as of what was proved in part")
	}
	_, r := w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot, Proof: p})
	w.relist(func(things map[string]*thing, rv uint64) uint64 { return at + 10 })
	r.wantEnd(t, fanout.Expired, true)
}
