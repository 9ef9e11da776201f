package fanout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// A snapshot never changes.
func TestSnapshotIsolation(t *testing.T) {
	rng := steady.Rand(t)
	w := newWorld(t, roomy)
	type held struct {
		snapshot fanout.Snapshot
		want     []string
	}
	var snapshots []held
	for range 1000 {
		o := randomThing(rng)
		o.name = fmt.Sprint(rng.IntN(300))
		switch {
		case rng.IntN(3) > 0 || w.things[o.key()] == nil:
			w.put(o)
		default:
			w.del(o.key())
		}
		if rng.IntN(20) == 0 {
			s := w.cache.Snapshot()
			if s.ResourceVersion != w.rv || s.Len() != len(w.things) {
				t.Fatalf("snapshot of %d with %d objects, want %d with %d",
					s.ResourceVersion, s.Len(), w.rv, len(w.things))
			}
			var want []string
			for _, o := range w.stateAt(w.rv) {
				want = append(want, o.json())
			}
			snapshots = append(snapshots, held{s, want})
		}
	}
	for _, h := range snapshots {
		diff(t, state(h.snapshot), h.want)
	}
	if again := w.cache.Snapshot(); again.Len() != len(w.things) {
		t.Errorf("%d objects, want %d", again.Len(), len(w.things))
	}
}

// Ascend goes in key order, from the given key, and stops when asked to.
func TestSnapshotAscend(t *testing.T) {
	w := newWorld(t, roomy)
	for _, ns := range []string{"a", "a-b", "a.b", "b", "aa"} {
		for _, name := range []string{"x", "y", "z"} {
			w.put(thing{namespace: ns, name: name})
		}
	}
	s := w.cache.Snapshot()
	f := func(namespace, fs, after string, most int, want ...string) {
		t.Helper()
		var got []string
		s.Ascend(sel(t, namespace, "", fs).filter(t), after, func(o *framing.Object) bool {
			got = append(got, o.Key)
			return len(got) < most
		})
		if !slices.Equal(got, want) {
			t.Errorf("%q, %q behind %q: %q, want %q", namespace, fs, after, got, want)
		}
	}
	// Keys are compared as a whole, as in etcd: namespace a-b comes before a.
	f("", "", "", 99, "a-b/x", "a-b/y", "a-b/z", "a.b/x", "a.b/y", "a.b/z", "a/x", "a/y", "a/z", "aa/x", "aa/y", "aa/z",
		"b/x", "b/y", "b/z")
	f("", "", "aa/x", 2, "aa/y", "aa/z")
	f("", "", "aa/deleted-since", 2, "aa/x", "aa/y")
	f("", "", "b/z", 99)
	f("a", "", "", 99, "a/x", "a/y", "a/z")
	f("a", "", "a-b/z", 99, "a/x", "a/y", "a/z")
	f("a", "", "a/x", 1, "a/y")
	f("a", "", "a/z", 99)
	f("none", "", "", 99)
	f("a", "metadata.name=y", "", 99, "a/y")
	f("a", "metadata.name=y", "a/x", 99, "a/y")
	f("a", "metadata.name=y", "a/y", 99)
	f("a", "metadata.name=w", "", 99)
	f("", "metadata.name=y", "a/x", 2, "a/y", "aa/y")
	f("", "metadata.name=", "", 99)
	f("", "metadata.name=y,metadata.namespace=b", "", 99, "b/y")

	cluster := newWorld(t, roomy)
	for _, name := range []string{"x", "y", "z"} {
		cluster.put(thing{name: name})
	}
	s = cluster.cache.Snapshot()
	f("", "", "x", 99, "y", "z")
	f("", "metadata.name=y", "", 99, "y")
	f("", "metadata.name=y", "y", 99)
	f("", "metadata.name=w", "", 99)
	f("", "metadata.name!=y", "", 99, "x", "z")
	f("", "metadata.namespace=a", "", 99)
	f("a", "metadata.name=y", "", 99)

	if o, ok := s.Get("y"); !ok || o.Name != "y" {
		t.Errorf("Get: %v, %v", o, ok)
	}
	if _, ok := s.Get("w"); ok {
		t.Error("Get found what is not there")
	}
}

// Finding an object by name in cluster scope is one look-up. Each kubelet does that for its Node.
func TestSnapshotByNameIsCheap(t *testing.T) {
	w := newWorld(t, roomy)
	var objects []*framing.Object
	for i := range 3000 {
		objects = append(objects, object(&thing{name: fmt.Sprint("node-", i), rv: uint64(101 + i)}))
	}
	if _, err := w.cache.Replace(objects, 10_000, time.Now()); err != nil {
		t.Fatal(err)
	}
	s := w.cache.Snapshot()
	took := func(fs string, want int) time.Duration {
		f, found := sel(t, "", "", fs).filter(t), 0
		start := time.Now()
		for range 100 {
			s.Ascend(f, "", func(*framing.Object) bool { found++; return true })
		}
		if found != 100*want {
			t.Errorf("%s: found %d, want %d", fs, found, 100*want)
		}
		return time.Since(start)
	}
	scan := took("spec.node=none", 0)
	for _, name := range []string{"node-7", "none"} {
		if d := took("metadata.name="+name, len(name)/6); d > scan/5 {
			t.Errorf("100 look-ups of %s took %v, as many scans %v", name, d, scan)
		}
	}
}

// SnapshotAt returns the state as of each resourceVersion that the history reaches back to, and
// nothing where that state is not known.
func TestSnapshotAt(t *testing.T) {
	limits := roomy
	limits.HistoryEvents = 200
	w := newWorld(t, limits)
	rnd := rand.New(rand.NewPCG(1, 2))
	check := func(rv uint64) {
		t.Helper()
		inGap := slices.ContainsFunc(w.gaps, func(g [2]uint64) bool { return g[0] < rv && rv < g[1] })
		known := rv >= w.cache.Stats().Oldest && rv <= w.cache.Progress() && !inGap
		s, ok := w.cache.SnapshotAt(rv)
		if ok != known {
			t.Errorf("at %d of %d…%d, in a gap %v: %v", rv, w.cache.Stats().Oldest, w.cache.Progress(), inGap, ok)
		}
		if !ok {
			return
		}
		var want []string
		for _, o := range w.stateAt(rv) {
			want = append(want, o.json())
		}
		if got := state(s); !slices.Equal(got, want) || s.ResourceVersion != rv {
			t.Errorf("at %d: got %d %q, want %q", rv, s.ResourceVersion, got, want)
		}
	}
	for i := range 600 {
		name := fmt.Sprintf("o%d", rnd.IntN(20))
		switch n := rnd.IntN(20); {
		case n == 0:
			w.advance(uint64(rnd.IntN(3)))
		case i%150 == 100:
			w.relist(func(things map[string]*thing, rv uint64) uint64 {
				delete(things, "a/"+name)
				o := named("relisted")
				things["a/relisted"] = o.at(rv + 2)
				return rv + 5
			})
		case n < 8 && w.things["a/"+name] != nil:
			w.del("a/" + name)
		default:
			w.put(named(name, "i", strconv.Itoa(i)))
		}
		if i%50 == 49 {
			for rv := w.rv - min(w.rv, 260); rv <= w.rv+2; rv++ {
				check(rv)
			}
			if got, want := state(w.cache.Snapshot()), w.stateAt(w.rv); len(got) != len(want) {
				t.Fatalf("looking back has changed the cache: %d objects, want %d", len(got), len(want))
			}
		}
	}
}

// Snapshots have the same identity if they hold the same objects, whatever their resourceVersion.
func TestSnapshotIdentity(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x"))
	a := w.cache.Snapshot()
	w.advance(5)
	b := w.cache.Snapshot()
	w.put(named("y"))
	c := w.cache.Snapshot()
	if a.Identity() != b.Identity() || b.ResourceVersion != a.ResourceVersion+5 || a.Identity() == c.Identity() {
		t.Errorf("%v, %v, %v", a.Identity(), b.Identity(), c.Identity())
	}
}

// Initial events that a selector picks from a large collection are searched for in several turns,
// and all of them are found.
func TestSnapshotTurns(t *testing.T) {
	w := newWorld(t, roomy)
	const objects = 2*fanout.MaxSearchWork + 5000
	list := make([]*framing.Object, objects)
	var want []string
	w.rv++
	for i := range list {
		o := named(fmt.Sprintf("x%06d", i))
		if o.rv = w.rv; i == 0 || i == fanout.MaxSearchWork-1 || i == fanout.MaxSearchWork || i == objects-1 {
			o.node = "n1"
			want = append(want, line("ADDED", &o))
		}
		list[i] = object(&o)
	}
	if _, err := w.cache.Replace(list, w.rv, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, gzip := range []bool{false, true} {
		r := newRecorder()
		r.gzip = gzip
		w.flusher.Start(w.subscribe(sel(t, "", "", "spec.node=n1"), fanout.Request{Start: fanout.FromSnapshot, Timeout: time.Second, Gzip: gzip}), r)
		<-r.endc
		r.wantLines(t, want...)
	}
}
