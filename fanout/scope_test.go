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

// hundred returns a selector of a hundred requirements that no index can place. No two of them are
// equal.
func hundred(t testing.TB, namespace string, i int) selector {
	terms := make([]string, 100)
	for j := range terms {
		terms[j] = fmt.Sprintf("!l%d-%d", i, j)
	}
	return sel(t, namespace, strings.Join(terms, ","), "")
}

// The writer's work for one change is bounded in each namespace, however many clients watch there
// with whatever selectors. A client that would exceed the bound is refused. Changes of other
// namespaces cost nothing.
func TestScopeCost(t *testing.T) {
	w := newWorld(t, roomy)
	var asked int
	ask := func(f *fanout.Filter) { asked += f.Cost() }
	for _, namespace := range []string{"a", "b"} {
		served := 0
		for i := range 100 {
			_, err := w.cache.Subscribe(fanout.Request{Filter: hundred(t, namespace, i).filter(t), Timeout: time.Hour})
			if err == nil {
				served++
			} else if !errors.Is(err, fanout.ErrCostly) {
				t.Fatal(err)
			}
		}
		if served < 20 || served == 100 {
			t.Errorf("%s: %d of 100 are served", namespace, served)
		}
	}
	w.cache.OnAsk(ask)
	for namespace, most := range map[string]int{"a": fanout.MaxScopeCost, "b": fanout.MaxScopeCost, "c": 0} {
		asked = 0
		w.put(thing{namespace: namespace, name: "x"})
		if asked > most || (asked > 0) != (most > 0) {
			t.Errorf("%s: requirements that cost %d are asked for a change, want at most %d", namespace, asked, most)
		}
	}
	for _, s := range []selector{everything(t), sel(t, "a", "", ""), sel(t, "a", "", "metadata.name=x"),
		sel(t, "a", "", "spec.node=n1"), hundred(t, "a", 0)} {
		w.begins(s, fanout.Request{}, nil) // it costs nothing more
	}
}

// Filters that differ in something that the index knows are all accepted, whatever they have in common.
// But each label that only one filter uses costs every change of the namespace a look-up, so labels
// count.
func TestScopeCrowd(t *testing.T) {
	const clients = 3 * fanout.MaxScopeCost
	for form, bounded := range map[string]bool{"app=web,instance=i%d": false, "a=1,instance=i%d,zone=z": false,
		"app in (web,db),instance in (i%d,j)": true, "l%d=1": true} {
		var x fanout.Index
		taken := 0
		for i := range clients {
			if x.Add(sel(t, "a", fmt.Sprintf(form, i), "").filter(t)) {
				taken++
			}
		}
		if !bounded && taken < clients || taken < fanout.MaxScopeCost/8 || x.Cost("a") > fanout.MaxScopeCost {
			t.Errorf("%s: %d filters of %d are taken in, which cost %d", form, taken, clients, x.Cost("a"))
		}
		o := thing{namespace: "a", name: "x", rv: 1,
			labels: map[string]string{"app": "web", "a": "1", "instance": "i7", "zone": "z"}}
		cost := 0
		for f := range x.Concerned(&fanout.Change{Type: framing.Added, Object: object(&o)}) {
			cost += f.Cost()
		}
		if o.namespace = "b"; cost > fanout.MaxScopeCost || len(x.Concerned(&fanout.Change{Type: framing.Added, Object: object(&o)})) != 0 {
			t.Errorf("%s: a change costs %d, or something in another namespace", form, cost)
		}
	}
}

// Filters of one key are one, and their memory is counted until the last of them has left.
func TestFilterMemory(t *testing.T) {
	w := newWorld(t, roomy)
	bytes := func() float64 { return scrape(t, w.set)["watchfan_filter_bytes"] }
	f := hundred(t, "a", 0).filter(t)
	var subs []*fanout.Subscription
	for range 3 {
		subs = append(subs, w.subscribe(hundred(t, "a", 0), fanout.Request{}))
	}
	if got := bytes(); got != float64(f.Size()) {
		t.Errorf("%v bytes are counted, want %d", got, f.Size())
	}
	for _, s := range subs {
		s.Cancel()
	}
	if got := bytes(); got != 0 {
		t.Errorf("%v bytes are counted when all have gone", got)
	}
	s := w.subscribe(hundred(t, "a", 0), fanout.Request{})
	w.cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
	s.Cancel()
	if got := bytes(); got != 0 {
		t.Errorf("%v bytes are counted when the cache has closed", got)
	}
}
