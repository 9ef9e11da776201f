package fanout_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// Names in cluster scope are keys. Finding one is one look-up: each kubelet does that for its Node.
// TestSearchModel has objects with namespaces.
func TestSnapshotOfClusterScope(t *testing.T) {
	w := newWorld(t, roomy)
	for _, name := range []string{"x", "y", "z"} {
		w.put(thing{name: name})
	}
	s := w.cache.Snapshot()
	for _, c := range []struct {
		namespace, fs, after, want string
		looked                     int
	}{
		{"", "", "x", "y z", 3},
		{"", "metadata.name=y", "", "y", 1},
		{"", "metadata.name=y", "y", "", 1},
		{"", "metadata.name=w", "", "", 0},
		{"", "metadata.name!=y", "", "x z", 3},
		{"", "metadata.namespace=a", "", "", 0},
		{"a", "metadata.name=y", "", "", 0},
	} {
		var got []string
		f := sel(t, c.namespace, "", c.fs).filter(t)
		s.Ascend(f, c.after, func(o *framing.Object) bool {
			got = append(got, o.Key)
			return true
		})
		if n, _ := looked(s, f); strings.Join(got, " ") != c.want || n != c.looked {
			t.Errorf("%+v: got %q, looked at %d", c, got, n)
		}
	}
	if o, ok := s.Get("y"); !ok || o.Name != "y" {
		t.Errorf("Get: %v, %v", o, ok)
	}
	if _, ok := s.Get("w"); ok {
		t.Error("Get found what is not there")
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
	const objects = 2*fanout.MaxSearchWork + 5000
	list := make([]*framing.Object, objects)
	var want []string
	for i := range list {
		o := named(fmt.Sprintf("x%06d", i))
		if o.rv = 101; i == 0 || i == fanout.MaxSearchWork-1 || i == fanout.MaxSearchWork || i == objects-1 {
			o.node, o.labels = "n1", map[string]string{"l": "1"}
			want = append(want, line("ADDED", &o))
		}
		list[i] = object(&o)
	}
	sharing, _ := newIndexedWorld(t, roomy)
	for w, s := range map[*world]selector{newWorld(t, roomy): sel(t, "", "", "spec.node=n1"), sharing: sel(t, "", "l", "")} {
		if _, err := w.cache.Replace(list, 101, time.Now()); err != nil {
			t.Fatal(err)
		}
		_, r := w.client(s, fanout.Request{Start: fanout.FromSnapshot, Gzip: w == sharing})
		r.wantLines(t, want...)
	}
}

// The pages of a list are of one collection, which is made once, unless the cache begins anew.
func TestPastSnapshotShared(t *testing.T) {
	w := newWorld(t, roomy)
	at := w.put(named("x"))
	w.put(named("y"))
	past := func() fanout.Snapshot {
		t.Helper()
		s, ok := w.cache.SnapshotAt(at)
		if !ok || s.ResourceVersion != at || s.Len() != 1 {
			t.Fatalf("%v, %d objects as of %d, want 1 as of %d", ok, s.Len(), s.ResourceVersion, at)
		}
		return s
	}
	first := past()
	w.put(named("z"))
	if past().Identity() != first.Identity() {
		t.Error("made again")
	}
	z, q := named("z"), named("q")
	w.cache.Reset([]*framing.Object{object(z.at(at))}, at, ended)
	apply(t, w.cache, event("ADDED", q.at(at+1)))
	if _, ok := past().Get("a/z"); !ok {
		t.Error("kept over a reset")
	}
	runtime.KeepAlive(first)
}
