package fanout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// turns returns how many turns a subscription takes until it has n frames and has reached its list.
func turns(t *testing.T, w *world, s selector, r fanout.Request, n int) int {
	t.Helper()
	sub := w.subscribe(s, r)
	defer sub.Cancel()
	_, frames, turns := sub.Fill()
	if frames != n {
		t.Errorf("%v: %d frames, want %d", s, frames, n)
	}
	return turns
}

// A replay of changes that the filter does not select takes turns too.
func TestReplayTurns(t *testing.T) {
	limits := roomy
	limits.HistoryEvents, limits.HistoryBytes = 1<<20, 1<<30
	w := newWorld(t, limits)
	const events = 2*fanout.MaxSearchWork + 5000
	began := w.rv
	for i := range events {
		o := named("x")
		if i == 0 || i == events-1 {
			o.name = "y"
		}
		w.put(o)
	}
	n := turns(t, w, sel(t, "", "", "metadata.name=y"),
		resume(began), 2)
	if n < 3 {
		t.Errorf("%d events are searched in %d turns, want at least 3", events, n)
	}
}

// A turn's work counts with the filter's cost: with a selector of a hundred requirements, a turn
// looks at fewer objects.
func TestTurnsByWork(t *testing.T) {
	w := newWorld(t, roomy)
	const objects = 5000
	list := make([]*framing.Object, objects)
	w.rv++
	for i := range list {
		o := named(fmt.Sprintf("x%06d", i))
		o.rv = w.rv
		list[i] = object(&o)
	}
	if _, err := w.cache.Replace(list, w.rv, time.Now()); err != nil {
		t.Fatal(err)
	}
	absent := make([]string, 100)
	for i := range absent {
		absent[i] = fmt.Sprintf("!l%d", i)
	}
	s := sel(t, "", strings.Join(absent, ",")+",l", "")
	least := objects * s.filter(t).Cost() / fanout.MaxSearchWork
	if n := turns(t, w, s, fanout.Request{Start: fanout.FromSnapshot}, 0); n < least {
		t.Errorf("%d objects are searched in %d turns, want at least %d", objects, n, least)
	}
}
