package fanout_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// managedThing returns a thing with managedFields and the given labels.
func managedThing(name string, labels ...string) thing {
	o := named(name, labels...)
	o.managed = "kubelet"
	return o
}

// Lean clients share groups with each other only, and are counted while they are there. TestDelivery checks
// what they get.
func TestLean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		var subs []*fanout.Subscription
		for i := range 8 {
			s := []selector{everything(t), sel(t, "", "l=1", "")}[i/4]
			sub, _ := w.client(s, fanout.Request{Variant: []*fanout.Variant{nil, fanout.Lean}[i%2]})
			subs = append(subs, sub)
		}
		f := func(groups int, lean float64) {
			t.Helper()
			synctest.Wait()
			if n, counted := w.cache.Stats().Groups, scrape(t, w.set)["watchfan_lean_watchers"]; n != groups || counted != lean {
				t.Errorf("%d groups, %v lean watchers, want %d and %v", n, counted, groups, lean)
			}
		}
		f(4, 4)
		for _, s := range subs {
			s.End(fanout.Ending{Reason: fanout.Gone})
		}
		f(0, 0)
	})
}

// A lean frame is made once for all lean clients, whatever their filters.
func TestLeanShares(t *testing.T) {
	in, out := managedThing("x", "l", "1"), managedThing("x")
	filters := []*fanout.Filter{sel(t, "", "l=1", "").filter(t), sel(t, "a", "l", "").filter(t)}
	for _, e := range []*fanout.Change{
		{Type: framing.Added, Object: object(in.at(2))},
		{Type: framing.Modified, Prev: object(in.at(1)), Object: event("MODIFIED", in.at(2)).Object},
		{Type: framing.Modified, Prev: object(in.at(1)), Object: event("MODIFIED", out.at(2)).Object},
		{Type: framing.Deleted, Prev: object(in.at(1)), Object: event("DELETED", in.at(2)).Object},
	} {
		var frames []framing.Frame
		for _, f := range filters {
			whole, ok := e.FrameFor(f)
			got, ok2 := e.TrimmedFrameFor(f, framing.Lean)
			if want := lean(string(whole.Payload(nil))); !ok || !ok2 || string(got.Payload(nil)) != want {
				t.Errorf("got %s, %v, want %s", got.Payload(nil), ok2, want)
			}
			frames = append(frames, got)
		}
		if frames[0].Start() != frames[1].Start() {
			t.Errorf("%s: two filters have a frame each", frames[0].Payload(nil))
		}
	}
}

// The compressed forms of the frames of one object are not taken for each other, although lean
// frames of it end with the same bytes.
func TestLeanCompressed(t *testing.T) {
	in, out := managedThing("x", "l", "1"), managedThing("x", "m", "1")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		w.put(in)
		// One change comes as MODIFIED to the first and as ADDED to the second.
		_, all := w.client(everything(t), fanout.Request{Gzip: true, Variant: fanout.Lean})
		_, entered := w.client(sel(t, "", "m", ""), fanout.Request{Gzip: true, Variant: fanout.Lean})
		rv := w.put(out)
		synctest.Wait()
		all.wantLines(t, lean(line("MODIFIED", out.at(rv))))
		entered.wantLines(t, lean(line("ADDED", out.at(rv))))
		// So does a replay.
		late := fanout.Request{Start: fanout.FromVersion, ResourceVersion: rv - 1, Gzip: true, Variant: fanout.Lean}
		_, all = w.client(everything(t), late)
		_, entered = w.client(sel(t, "", "m", ""), late)
		synctest.Wait()
		all.wantLines(t, lean(line("MODIFIED", out.at(rv))))
		entered.wantLines(t, lean(line("ADDED", out.at(rv))))
	})
}

// A lane whose objects have been sent to lean clients and to others takes little more memory than
// one with either.
func TestLeanMemory(t *testing.T) {
	const objects = 2000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	empty := heap()
	kept := make([]*framing.Object, objects)
	for i := range kept {
		o := managedThing("x", "app", "x", "l", "1")
		o.managed = strings.Repeat("m", 2000) // as in a pod: as much as the rest
		o.data = strings.Repeat("d", 2000)
		kept[i] = object(o.at(1))
	}
	whole := heap() - empty
	size, leanSize := 0, 0
	for _, o := range kept {
		size += o.Frame(framing.Added).Len()
		leanSize += o.TrimmedFrame(framing.Lean, framing.Added).Len()
	}
	both := heap() - empty
	runtime.KeepAlive(kept)
	t.Logf("%d objects: %d bytes of frames, %d of lean frames; heap %d, with lean frames %d",
		objects, size, leanSize, whole, both)
	if leanSize > size*65/100 || float64(both) > 1.2*float64(whole) {
		t.Errorf("heap %d, with lean frames %d", whole, both)
	}
}
