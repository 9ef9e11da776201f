package observe_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// A client that was told more in the form before its view lists once, however often the views of others change then. It
// has to list again when its own has changed, also if that is the same now.
func TestOutdatedByOthers(t *testing.T) {
	c := observe.Client{User: "system:serviceaccount:n0:app", Resource: schema.GroupResource{Resource: "pods"}}
	views := view.New(&view.Options{}, metrics.NewSet())
	o := observe.New(t.Context(), observe.Config{Options: &observe.Options{Clients: observe.Rules{{ViewOf: observe.OfNamespace}}},
		Views: views, Metrics: metrics.NewSet(), Guard: proxytest.Guard()})
	progress := func() map[schema.GroupResource]uint64 { return map[schema.GroupResource]uint64{c.Resource: 5} }
	label := func(name string, others int) {
		all := map[string]labels.Set{"n0": {view.Label: name}}
		for i := range others {
			all[fmt.Sprint("o", i)] = labels.Set{view.Label: view.Lean}
		}
		o.SetNamespaces(all, progress)
	}
	list := func() { o.List(c, o.View(c), "scope", 7, time.Now()) }
	want := func(when string, outdated bool) {
		t.Helper()
		if got := o.Outdated(c, o.View(c), "scope", 8); got != outdated {
			t.Errorf("%s: outdated %t, want %t", when, got, outdated)
		}
	}
	passed := o.Follow(c, observe.Serve, observe.Read{Watch: true, Scope: "scope"})
	passed.Began(nil)
	label(view.Lean, 0)
	want("in a view", true)
	list()
	for i := range 100 {
		label(view.Lean, i)
		if i < 50 {
			want("others have it too", false)
		}
	}
	want("after more changes than are known", true)
	list()
	want("listed again", false)
	label("", 0)
	label(view.Lean, 0)
	want("back in the view", true)
	list()
	want("listed in it", false)
	asked := time.Now().Add(-1)
	passed.End(true)
	want("told more than another has listed", true)
	o.List(c, o.View(c), "scope", 7, asked)
	want("another has listed meanwhile", true)
	list()
	want("listed since", false)
}

// A client that has read in a view by a rule that is gone has to list, also after more changes of the namespaces of others
// than are known, while its resource has had no clients. One that no rule has ever been about does not.
func TestOutdatedByForgottenRules(t *testing.T) {
	of := func(user string) observe.Client {
		return observe.Client{User: user, Resource: schema.GroupResource{Resource: "pods"}}
	}
	views := view.New(&view.Options{}, metrics.NewSet())
	o := observe.New(t.Context(), observe.Config{Options: &observe.Options{Clients: observe.Rules{{Users: []observe.User{"a"}, View: view.Lean}}},
		Views: views, Metrics: metrics.NewSet(), Guard: proxytest.Guard()})
	progress := func() map[schema.GroupResource]uint64 { return map[schema.GroupResource]uint64{{Resource: "pods"}: 5} }
	idle := func() map[schema.GroupResource]uint64 { return nil }
	all := make(map[string]labels.Set)
	for i, rules := range []observe.Rules{{{ViewOf: observe.OfNamespace}}, {{Users: []observe.User{"b"}, View: view.Lean}}, nil} {
		o.SetRules(rules, progress)
		for j := range 100 {
			all[fmt.Sprint("o", i, j)] = labels.Set{view.Label: view.Lean}
			o.SetNamespaces(all, idle)
		}
	}
	for user, want := range map[string]bool{"a": true, "b": true, "c": false} {
		if got := o.Outdated(of(user), nil, "scope", 5); got != want {
			t.Errorf("%s: outdated %t, want %t", user, got, want)
		}
	}
}

// A client that resumes from what it was told in another view has to list, however often rules, labels and views
// have changed meanwhile. One that knows more than others were told before does not have to, and nobody
// has to twice.
func TestOutdated(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	config := func(name, keep string) view.Config {
		return view.Config{Name: view.Name(name), Resources: []view.Part{{Resource: "pods", Keep: []view.Kept{view.Kept(keep)}}}}
	}
	lists, resumes := 0, 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		views := view.New(&view.Options{Views: view.Configs{config("a", "x"), config("b", "x")}}, metrics.NewSet())
		o := observe.New(t.Context(), observe.Config{Options: &observe.Options{}, Views: views, Metrics: metrics.NewSet(), Guard: proxytest.Guard()})
		rv := uint64(1)
		progress := func() map[schema.GroupResource]uint64 { return map[schema.GroupResource]uint64{pods: rv} }
		type informer struct {
			observe.Client
			rv    uint64     // as of which it knows its resource; 0 for nothing
			in    *view.View // in which it has been told so
			moved uint64     // up to which it may have been told in another form than now
		}
		var all []*informer
		for i := range 6 {
			c := observe.Client{User: fmt.Sprintf("system:serviceaccount:n%d:app", i%3), UserAgent: fmt.Sprint(i), Resource: pods}
			if i > 2 {
				c.In = []string{"", "a", "b"}[i%3]
			}
			all = append(all, &informer{Client: c})
		}
		for range 400 {
			switch rv += uint64(rng.IntN(2)); rng.IntN(4) {
			case 0:
				before := make([]*view.View, len(all))
				for i, c := range all {
					before[i] = o.View(c.Client)
				}
				if rng.IntN(4) == 0 {
					views.Replace(&view.Options{Views: view.Configs{config("a", []string{"x", "y"}[rng.IntN(2)]), config("b", "x")}})
				}
				rules := observe.Rules{{Namespaces: []observe.Namespace{"n1"}, Mode: observe.Serve}, {ViewOf: observe.OfNamespace}}
				names := map[string]labels.Set{"n0": {view.Label: []string{"a", "b", "none"}[rng.IntN(3)]}, "n1": {view.Label: "a"}, "n2": {view.Label: "b"}}
				o.SetNamespaces(names, progress)
				o.SetRules(rules[rng.IntN(2):], progress)
				for i, c := range all {
					if !before[i].SameFor(o.View(c.Client), pods) {
						c.moved = rv
					}
				}
			default:
				c := all[rng.IntN(len(all))]
				now := o.View(c.Client)
				outdated := c.rv != 0 && o.Outdated(c.Client, now, "scope", c.rv)
				if c.rv != 0 && (!outdated && !c.in.SameFor(now, pods) || outdated && c.rv > c.moved) {
					t.Fatalf("seed %d: %+v at %d: outdated %v", seed, c, rv, outdated)
				}
				if c.rv == 0 || outdated {
					lists++
					if !o.List(c.Client, now, "scope", rv, time.Now()) || o.Outdated(c.Client, now, "scope", rv) {
						t.Fatalf("seed %d: %+v has to list again", seed, c)
					}
				} else {
					resumes++
				}
				c.rv, c.in = rv, now
			}
		}
	}
	if lists < 500 || resumes < 500 {
		t.Errorf("%d lists, %d resumes: this shows little", lists, resumes)
	}
}
