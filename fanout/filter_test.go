package fanout_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// What selectors mean (k8s.io/apimachinery/pkg/fields and pkg/labels, selector.go).
func TestFilter(t *testing.T) {
	things := map[string]*thing{
		"a/x": {namespace: "a", name: "x", rv: 1, labels: map[string]string{"l": "1"}, node: "n1", on: true},
		"a/y": {namespace: "a", name: "y", rv: 1, labels: map[string]string{"l": "2", "m": ""}, node: "n2"},
		"b/x": {namespace: "b", name: "x", rv: 1, labels: map[string]string{"l": "10"}},
		"c":   {name: "c", rv: 1}, // in cluster scope
	}
	f := func(namespace, ls, fs, want string) {
		t.Helper()
		s := sel(t, namespace, ls, fs)
		var got, twin []string
		for _, key := range []string{"a/x", "a/y", "b/x", "c"} {
			if s.filter(t).Match(object(things[key])) {
				got = append(got, key)
			}
			if s.matches(things[key]) {
				twin = append(twin, key)
			}
		}
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%v selects %q, want %q", s, g, want)
		}
		if g := strings.Join(twin, " "); g != want {
			t.Errorf("%v: the twin selects %q, want %q", s, g, want)
		}
	}
	const all = "a/x a/y b/x c"
	f("", "", "", all)
	f("a", "", "", "a/x a/y")
	f("none", "", "", "")

	f("", "", "metadata.name=x", "a/x b/x")
	f("", "", "metadata.name==x", "a/x b/x")
	f("a", "", "metadata.name=x", "a/x")
	f("", "", "metadata.name!=x", "a/y c")
	f("", "", "metadata.name=", "") // "selects nothing"
	f("", "", "metadata.name!=", all)
	f("", "", "metadata.name=c", "c")
	f("", "", "metadata.namespace=a", "a/x a/y")
	f("a", "", "metadata.namespace=a", "a/x a/y")
	f("a", "", "metadata.namespace=b", "") // contradicts the path
	f("", "", "metadata.namespace!=a", "b/x c")
	f("", "", "metadata.namespace=", "c") // in cluster scope this is everything (seen on 1.36.3)
	f("a", "", "metadata.namespace=", "")
	f("", "", "metadata.name=x,metadata.namespace=b", "b/x")
	f("", "", "metadata.name=x,metadata.name=y", "")
	f("", "", "metadata.name=x,metadata.name!=x", "")
	f("", "", "metadata.name=x,metadata.name=x", "a/x b/x")
	f("", "", ",", all) // "empty terms are skipped"
	f("", "", ",metadata.name=x,", "a/x b/x")
	f("", "", "spec.node=n1", "a/x")
	f("", "", "spec.node=", "b/x c")
	f("", "", "spec.node!=", "a/x a/y")
	f("", "", "spec.node!=n1", "a/y b/x c")
	f("", "", "spec.node=n1,spec.node=n2", "")
	f("", "", "spec.on=true", "a/x")
	f("", "", "spec.on=false,spec.node!=n2", "b/x c")
	f("", "", `spec.node=n\,1`, "")

	f("", "l", "", "a/x a/y b/x")
	f("", "!l", "", "c")
	f("", "l=1", "", "a/x")
	f("", "l==1", "", "a/x")
	f("", "l!=1", "", "a/y b/x c") // "absent, or value not in set"
	f("", "l in (1,2)", "", "a/x a/y")
	f("", "l notin (1,2)", "", "b/x c")
	f("", "m=", "", "a/y")
	f("", "m in ()", "", "a/y")
	f("", "m!=", "", "a/x b/x c")
	f("", "l>1", "", "a/y b/x") // "present, both int64"
	f("", "l<2", "", "a/x")
	f("", "l,l!=1", "", "a/y b/x")
	f("", "l=1,l=2", "", "")
	f("", "in in (in),notin=", "", "")
	f("b", "l", "spec.node=", "b/x")
}

func TestFilterNothing(t *testing.T) {
	o := object(&thing{namespace: "a", name: "x", rv: 1})
	f := func(ls labels.Selector, fs fields.Selector, want bool) *fanout.Filter {
		t.Helper()
		filter, ok := fanout.NewFilter("", ls, fs, fieldLabels)
		if !ok || filter.Match(o) != want {
			t.Errorf("%v, %v: selects %v, want %v", ls, fs, !want, want)
		}
		return filter
	}
	all := f(nil, nil, true)
	for _, nothing := range []*fanout.Filter{
		f(labels.Nothing(), nil, false),
		f(nil, fields.Nothing(), false),
		f(labels.Nothing(), fields.Nothing(), false),
	} {
		if nothing.Key() == all.Key() {
			t.Errorf("a selector of nothing shares the group of everything: %s", all.Key())
		}
	}
}

func TestFilterUnknownField(t *testing.T) {
	for fs, want := range map[string]bool{"spec.node=x": true, "spec.other=x": false,
		"metadata.name=x,spec.other!=x": false, "kind=x": false} {
		if _, ok := fanout.NewFilter("", nil, fields.ParseSelectorOrDie(fs), fieldLabels); ok != want {
			t.Errorf("%s: ok=%v, want %v", fs, ok, want)
		}
	}
}

// Filters that mean the same share a group; others never do.
func TestFilterKey(t *testing.T) {
	type triple [3]string
	same := func(a, b triple, want bool) {
		t.Helper()
		ka, kb := sel(t, a[0], a[1], a[2]).filter(t).Key(), sel(t, b[0], b[1], b[2]).filter(t).Key()
		if (ka == kb) != want {
			t.Errorf("%q and %q: keys %s and %s, want same=%v", a, b, ka, kb, want)
		}
	}
	same(triple{"", "a=1,b=2", ""}, triple{"", "b=2,a=1", ""}, true)
	same(triple{"", "a=1", ""}, triple{"", "a==1", ""}, true)
	same(triple{"", "a=1", ""}, triple{"", "a in (1)", ""}, true)
	same(triple{"", "a!=1", ""}, triple{"", "a notin (1)", ""}, true)
	same(triple{"", "a in (1,2)", ""}, triple{"", "a in (2, 1, 2)", ""}, true)
	same(triple{"", "a!=1,a!=2", ""}, triple{"", "a!=2,a!=1", ""}, true)
	same(triple{"", "a=1,a=1", ""}, triple{"", "a=1", ""}, true)
	same(triple{"", "", "spec.node=1,spec.on=true"}, triple{"", "", "spec.on==true,spec.node=1,spec.node=1"}, true)
	same(triple{"a", "", ""}, triple{"", "", "metadata.namespace=a"}, true)
	same(triple{"a", "", "metadata.namespace=a"}, triple{"a", "", ""}, true)
	same(triple{"", "", "metadata.name="}, triple{"", "", "metadata.name=x,metadata.name=y"}, true)
	same(triple{"", "", ","}, triple{"", "", ""}, true)

	same(triple{"a", "", ""}, triple{"", "", ""}, false)
	same(triple{"a", "", ""}, triple{"b", "", ""}, false)
	same(triple{"a", "", ""}, triple{"", "", "metadata.name=a"}, false)
	same(triple{"", "a", ""}, triple{"", "!a", ""}, false)
	same(triple{"", "a", ""}, triple{"", "a=", ""}, false)
	same(triple{"", "a=1", ""}, triple{"", "a!=1", ""}, false)
	same(triple{"", "a>1", ""}, triple{"", "a<1", ""}, false)
	same(triple{"", "a in (1,2)", ""}, triple{"", "a notin (1,2)", ""}, false)
	same(triple{"", "a in (1,2)", ""}, triple{"", "a=1,a=2", ""}, false)
	same(triple{"", "", "spec.node=1"}, triple{"", "", "spec.node!=1"}, false)
	same(triple{"", "", "spec.node="}, triple{"", "", ""}, false)
	same(triple{"", "", "metadata.name="}, triple{"", "", ""}, false)

	// A value may contain any byte. It must not be able to imitate another part of the key.
	const nul = "\x00"
	same(triple{"", "", "spec.node=a" + nul + `spec.on\=b`}, triple{"", "", "spec.node=a,spec.on=b"}, false)
	same(triple{"a", "", "metadata.name=b"}, triple{"a" + nul + "b", "", ""}, false)
	same(triple{"", "", `spec.node=a" field "spec.on\=b`}, triple{"", "", "spec.node=a,spec.on=b"}, false)
}

// randomSelector draws from few values, to let filters overlap.
func randomSelector(t testing.TB, rng *rand.Rand) selector {
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	var ls, fs []string
	for range rng.IntN(3) {
		ls = append(ls, pick("l", "!l", "l=1", "l==1", "l=2", "l!=1", "l in (1,2)", "l in (2,1)", "l notin (1,3)", "m",
			"m=", "m!=1", "m in (1)", "l>1", "l<2"))
	}
	for range rng.IntN(3) {
		fs = append(fs, pick("spec.node=n1", "spec.node=n2", "spec.node=", "spec.node!=n1", "spec.on=true",
			"spec.on!=true", "metadata.name=x0", "metadata.name=x1", "metadata.name!=x1", "metadata.name=",
			"metadata.namespace=a", "metadata.namespace!=a", "metadata.namespace="))
	}
	s := sel(t, pick("", "", "a", "b"), strings.Join(ls, ","), strings.Join(fs, ","))
	if rng.IntN(3) == 0 {
		return randomShard(rng, s)
	}
	return s
}

// randomThing draws one of a few objects in a random version.
func randomThing(rng *rand.Rand) thing {
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	o := thing{
		namespace: pick("a", "a", "b", "a-b"), name: pick("x0", "x1", "x2", "x3", "x4"),
		node: pick("", "n1", "n2", "n3"), on: rng.IntN(2) == 0, data: strings.Repeat("d", rng.IntN(200)),
		managed: pick("", "kubelet", "kubectl"),
	}
	o.uid = "uid of " + o.key()
	for _, label := range []string{"l", "m"} {
		if rng.IntN(3) > 0 {
			if o.labels == nil {
				o.labels = make(map[string]string)
			}
			o.labels[label] = pick("", "1", "2", "3", "z")
		}
	}
	return o
}

// A filter selects what apimachinery's selectors select, and filters with the same key select the
// same.
func TestFilterProperty(t *testing.T) {
	rng := steady.Rand(t)
	var things []*thing
	var scanned []*framing.Object
	for range 300 {
		o := randomThing(rng)
		if rng.IntN(10) == 0 {
			o.namespace = ""
		}
		things = append(things, o.at(1))
		scanned = append(scanned, object(things[len(things)-1]))
	}
	byKey := make(map[string]selector)
	selected := make(map[string][]bool)
	shared := 0
	for range 2000 {
		s := randomSelector(t, rng)
		f := s.filter(t)
		var got []bool
		for i, o := range things {
			got = append(got, f.Match(scanned[i]))
			if got[len(got)-1] != s.matches(o) {
				t.Fatalf("%v on %s: %v, want %v", s, o.json(), got[len(got)-1], s.matches(o))
			}
		}
		if other, ok := byKey[f.Key()]; ok {
			shared++
			if !slices.Equal(selected[f.Key()], got) {
				t.Fatalf("%v and %v share the key %s and select different objects", s, other, f.Key())
			}
		}
		byKey[f.Key()], selected[f.Key()] = s, got
	}
	if shared < 100 {
		t.Errorf("only %d filters met", shared)
	}
}
