package fanout_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/fanout"
)

// A replay takes turns too, of changes that the filter does not select. A turn's work counts with the
// filter's cost: with a selector of a hundred requirements, a turn looks at fewer objects.
func TestTurns(t *testing.T) {
	limits := roomy
	limits.HistoryEvents, limits.HistoryBytes = 1<<20, 1<<30
	w := newWorld(t, limits)
	began := w.rv
	const objects, events = 5000, 2*fanout.MaxSearchWork + 5000
	for i := range events {
		w.put(named(fmt.Sprintf("x%06d", i%objects)))
	}
	absent := make([]string, 100)
	for i := range absent {
		absent[i] = fmt.Sprintf("!l%d", i)
	}
	costly := sel(t, "", strings.Join(absent, ",")+",l", "")
	for _, c := range []struct {
		selector
		fanout.Request
		frames, least int
	}{
		{sel(t, "", "", "metadata.name=x000007"), resume(began), events / objects, 3},
		{costly, fanout.Request{Start: fanout.FromSnapshot}, 0, objects * costly.filter(t).Cost() / fanout.MaxSearchWork},
	} {
		sub := w.subscribe(c.selector, c.Request)
		if _, frames, turns := sub.Fill(); frames != c.frames || turns < c.least {
			t.Errorf("%v: %d frames in %d turns, want %d in at least %d", c.selector, frames, turns, c.frames, c.least)
		}
		sub.Cancel()
	}
}
