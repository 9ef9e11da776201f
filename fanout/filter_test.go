package fanout_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// A selector of nothing does not share the group of everything. Fields that the kind does not have are
// refused.
func TestFilterNothing(t *testing.T) {
	all, _ := fanout.NewFilter("", nil, nil, fieldLabels)
	o := object(&thing{namespace: "a", name: "x", rv: 1})
	for _, s := range []selector{{labels: labels.Nothing()}, {fields: fields.Nothing()},
		{labels: labels.Nothing(), fields: fields.Nothing()}} {
		if nothing := s.filter(t); nothing.Match(o) || nothing.Key() == all.Key() || !all.Match(o) {
			t.Errorf("%v selects %v, with the key %s", s, nothing.Match(o), nothing.Key())
		}
	}
	for fs, want := range map[string]bool{"spec.node=x": true, "spec.other=x": false,
		"metadata.name=x,spec.other!=x": false, "kind=x": false} {
		if _, ok := fanout.NewFilter("", nil, fields.ParseSelectorOrDie(fs), fieldLabels); ok != want {
			t.Errorf("%s: ok=%v, want %v", fs, ok, want)
		}
	}
}

// Filters that mean the same share a group. Others never do: a value may contain any byte, and must not
// be able to imitate another part of the key.
func TestFilterKey(t *testing.T) {
	of := func(namespace, ls, fs string) selector { return sel(t, namespace, ls, fs) }
	l := func(ls string) selector { return of("", ls, "") }
	f := func(fs string) selector { return of("", "", fs) }
	uid := func(ranges ...fanout.HashRange) selector { return of("", "", "").shard(fanout.HashedUID, ranges...) }
	a, in, out := of("a", "", ""), half, rest // the namespace of a filter decides about a shard by namespaces
	if !a.shard(fanout.HashedNamespace, half).inShard(&thing{namespace: "a"}) {
		in, out = rest, half
	}
	const nul = "\x00"
	quarter := fanout.HashRange{Last: math.MaxUint64 / 4}
	seen := make(map[string]selector)
	for _, same := range [][]selector{
		{l(""), f(","), uid(half, rest)},
		{l("a=1"), l("a==1"), l("a in (1)"), l("a=1,a=1")},
		{l("a=1,b=2"), l("b=2,a=1")},
		{l("a!=1"), l("a notin (1)")},
		{l("a in (1,2)"), l("a in (2, 1, 2)")},
		{l("a!=1,a!=2"), l("a!=2,a!=1")},
		{f("spec.node=1,spec.on=true"), f("spec.on==true,spec.node=1,spec.node=1")},
		{a, f("metadata.namespace=a"), of("a", "", "metadata.namespace=a"), a.shard(fanout.HashedNamespace, in)},
		{f("metadata.name="), f("metadata.name=x,metadata.name=y")},
		{of("b", "", "")}, {f("metadata.name=a")}, {l("a")}, {l("!a")}, {l("a=")}, {l("a>1")}, {l("a<1")},
		{l("a notin (1,2)")}, {l("a=1,a=2")}, {f("spec.node=1")}, {f("spec.node!=1")}, {f("spec.node=")},
		{f("spec.node=a" + nul + `spec.on\=b`)}, {f("spec.node=a,spec.on=b")}, {f(`spec.node=a" field "spec.on\=b`)},
		{of("a", "", "metadata.name=b")}, {of("a"+nul+"b", "", "")},
		{uid(half), uid(half, quarter, half), uid(quarter, fanout.HashRange{First: math.MaxUint64/4 + 1, Last: math.MaxUint64 / 2})},
		{uid(quarter, rest), uid(rest, quarter)}, {uid(rest)}, {l("").shard(fanout.HashedNamespace, half)},
		{l("l=1").shard(fanout.HashedUID, half)},
	} {
		key := same[0].filter(t).Key()
		for _, s := range same {
			if got := s.filter(t).Key(); got != key {
				t.Errorf("%v has the key %s, want %s", s, got, key)
			}
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%v and %v have the key %s", same[0], other, key)
		}
		seen[key] = same[0]
	}
	if none := a.shard(fanout.HashedNamespace, out).filter(t); none.Match(object(&thing{namespace: "a", name: "x", rv: 1})) {
		t.Errorf("a namespace that is not in the shard has objects: %s", none.Key())
	}
}

// randomSelector draws from few values, to let filters overlap.
func randomSelector(t testing.TB, rng *rand.Rand) selector {
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	var ls, fs []string
	for range rng.IntN(3) {
		ls = append(ls, pick("l", "!l", "l=1", "l==1", "l=2", "l!=1", "l in (1,2)", "l in (2,1)", "l notin (1,3)", "m",
			"m=", "m!=1", "m!=", "m in (1)", "m in ()", "l>1", "l<2", "l in (in),m notin (in)"))
	}
	for range rng.IntN(3) {
		fs = append(fs, pick("", "spec.node=n1", "spec.node==n2", "spec.node=", "spec.node!=", "spec.node!=n1", `spec.node=n\,1`,
			"spec.on=true", "spec.on!=true", "metadata.name=x0", "metadata.name=x1", "metadata.name!=x1", "metadata.name=", "metadata.name!=",
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
