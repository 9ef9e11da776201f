package fanout_test

import (
	"testing"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// The index visits every filter whose clients get something of an event, and none twice.
func TestIndexProperty(t *testing.T) {
	rng := steady.Rand(t)
	const filters, events = 150, 400
	var visited, all, wanted int
	for range 5 {
		var x fanout.Index
		selectors := make(map[*fanout.Filter]selector)
		for range filters {
			s := randomSelector(t, rng)
			f := s.filter(t)
			selectors[f] = s
			x.Add(f)
		}
		for range events {
			after := randomThing(rng)
			c := change{rv: 2, after: after.at(2)}
			if rng.IntN(3) > 0 { // another version of the same object
				before := randomThing(rng)
				before.namespace, before.name, before.uid = after.namespace, after.name, after.uid
				c.before = before.at(1)
			}
			e := &fanout.Change{Type: framing.Added, Object: object(c.after)}
			if c.before != nil {
				e.Type, e.Prev = framing.Modified, object(c.before)
				if rng.IntN(3) == 0 {
					e.Type, e.Object, c.after = framing.Deleted, object(c.before.at(2)), nil
				}
			}
			visits := x.Concerned(e)
			for f, s := range selectors {
				n := visits[f]
				frame, ok := e.FrameFor(f, nil)
				want := c.line(s)
				if ok != (want != "") || ok && string(frame.Payload(nil)) != want {
					t.Fatalf("%v: frame %s, want %s", s, frame.Payload(nil), want)
				}
				if n > 1 || ok && n != 1 {
					t.Fatalf("%v: visited %d times for %s", s, n, want)
				}
				visited += n
				all++
				if ok {
					wanted++
				}
			}
			if len(selectors) > filters/2 && rng.IntN(10) == 0 { // some filters leave in between
				for f := range selectors {
					x.Remove(f)
					delete(selectors, f)
					break
				}
			}
		}
		for f := range selectors {
			x.Remove(f)
		}
		if !x.Empty() {
			t.Error("the index holds on to filters that left")
		}
		if n := len(x.Concerned(&fanout.Change{Type: framing.Added, Object: object(&thing{name: "x", rv: 1})})); n != 0 {
			t.Errorf("%d filters visited that left", n)
		}
	}
	t.Logf("%d visits of %d possible for %d frames", visited, all, wanted)
	if visited > all*2/3 || wanted == 0 {
		t.Errorf("%d visits of %d possible: the index saves nothing", visited, all)
	}
}

// A filter's demands decide its place: the index does not visit it for an event about something
// else.
func TestIndexSelectivity(t *testing.T) {
	f := func(namespace, ls, fs string, o thing, want int) {
		t.Helper()
		var x fanout.Index
		filter := sel(t, namespace, ls, fs).filter(t)
		x.Add(filter)
		e := &fanout.Change{Type: framing.Added, Object: object(o.at(1))}
		if got := x.Concerned(e)[filter]; got != want {
			t.Errorf("%q, %q, %q: visited %d times for %s, want %d", namespace, ls, fs, got, o.json(), want)
		}
	}
	a := thing{namespace: "a", name: "x", labels: map[string]string{"l": "1"}, node: "n1"}
	f("", "", "", a, 1)
	f("a", "", "", a, 1)
	f("b", "", "", a, 0)
	f("", "", "metadata.name=x", a, 1)
	f("", "", "metadata.name=y", a, 0)
	f("", "", "spec.node=n1", a, 1)
	f("", "", "spec.node=n2", a, 0)
	f("a", "", "spec.node=n2", a, 0)
	f("", "l=1", "", a, 1)
	f("", "l=2", "", a, 0)
	f("", "m=1", "", a, 0)
	f("", "l in (1,2)", "", a, 1)
	f("", "l in (2,3)", "", a, 0)
	f("", "l!=1", "", a, 1) // asked about every event
	f("b", "l!=1", "", a, 0)
	f("", "", "spec.node!=n1", a, 1)
	f("", "", "metadata.name=", a, 1) // matches nothing, but is asked
}
