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

// Lean clients get every event without managedFields, beside others of the same filter: initial
// ones, live ones, from history, and when objects come to their selector and leave it. TestDelivery
// checks the same at random.
func TestLean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		begin := w.put(managedThing("before", "l", "1"))
		var subs []*fanout.Subscription
		var recorders []*recorder
		var wants [][]string
		join := func(s selector, r fanout.Request) {
			for i := range 4 { // two lean ones, and two others
				want := w.initial(s, w.rv)
				if r.Start != fanout.FromSnapshot {
					want = w.since(s, r.ResourceVersion)
				}
				r.Variant, r.Gzip = nil, i%2 == 0
				if i < 2 {
					r.Variant = fanout.Lean
				}
				sub, rec := w.client(s, r)
				subs, recorders, wants = append(subs, sub), append(recorders, rec), append(wants, want)
			}
		}
		selected := sel(t, "", "l=1", "")
		join(everything(t), fanout.Request{Start: fanout.FromSnapshot})
		join(selected, fanout.Request{Start: fanout.FromSnapshot})
		if n := w.cache.Stats().Groups; n != 4 {
			t.Errorf("%d groups, want one lean and one other for each of two filters", n)
		}
		if n := scrape(t, w.set)["watchfan_lean_watchers"]; n != 4 {
			t.Errorf("watchfan_lean_watchers is %v, want 4", n)
		}
		after := w.rv
		w.put(managedThing("x", "l", "1"))
		w.put(managedThing("x", "l", "1", "m", "2"))
		w.put(managedThing("x", "m", "2"))
		w.put(named("x", "l", "1"))
		w.del("a/x")
		w.relist(func(things map[string]*thing, rv uint64) uint64 {
			o := *things["a/before"]
			o.labels = nil
			things["a/before"] = o.at(rv + 1)
			return rv + 2
		})
		for i := range wants {
			s := []selector{everything(t), selected}[i/4]
			wants[i] = append(wants[i], w.since(s, after)...)
		}
		join(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: begin})
		join(selected, fanout.Request{Start: fanout.FromVersion, ResourceVersion: begin})
		synctest.Wait()
		for i, r := range recorders {
			if isLean := i%4 < 2; isLean {
				for j, l := range wants[i] {
					wants[i][j] = lean(l)
				}
			}
			if whole := strings.Contains(strings.Join(wants[i], ""), "managedFields"); whole != (i%4 >= 2) {
				t.Fatalf("client %d: the test has managedFields: %v", i, whole)
			}
			diff(t, r.lines(t), wants[i])
		}
		for _, s := range subs {
			s.End(fanout.Ending{Reason: fanout.Gone})
		}
		synctest.Wait()
		if n := scrape(t, w.set)["watchfan_lean_watchers"]; n != 0 {
			t.Errorf("watchfan_lean_watchers is %v, want 0", n)
		}
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
