package fanout_test

import (
	"testing"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// managedThing returns a thing with managedFields and the given labels.
func managedThing(name string, labels ...string) thing {
	o := named(name, labels...)
	o.managed = "kubelet"
	return o
}

// The frame that a change has for a client is made once for all clients of that kind, lean or not,
// whatever their filters.
func TestLeanShares(t *testing.T) {
	in, out := managedThing("x", "l", "1"), managedThing("x")
	filters := []*fanout.Filter{sel(t, "", "l=1", "").filter(t), sel(t, "a", "l", "").filter(t)}
	for _, e := range []*fanout.Change{
		{Type: framing.Added, Object: object(in.at(2))},
		{Type: framing.Modified, Prev: object(in.at(1)), Object: event("MODIFIED", in.at(2)).Object},
		{Type: framing.Modified, Prev: object(in.at(1)), Object: event("MODIFIED", out.at(2)).Object},
		{Type: framing.Deleted, Prev: object(in.at(1)), Object: event("DELETED", in.at(2)).Object},
	} {
		whole, _ := e.FrameFor(filters[0], nil)
		for trim, want := range map[*framing.Trim]string{nil: string(whole.Payload(nil)), framing.Lean: lean(string(whole.Payload(nil)))} {
			a, ok := e.FrameFor(filters[0], trim)
			b, ok2 := e.FrameFor(filters[1], trim)
			if !ok || !ok2 || string(a.Payload(nil)) != want || a.Start() != b.Start() {
				t.Errorf("got %s and %s, want %s for both", a.Payload(nil), b.Payload(nil), want)
			}
		}
	}
}
