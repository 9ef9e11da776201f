package chaos_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// mutation is a mistake that a server may make in a stream.
type mutation struct {
	name string
	do   func(events []event, i int) []event // i is one of the changes, and not the first or the last
}

var mutations = []mutation{
	{"an event is missing", func(e []event, i int) []event { return slices.Delete(e, i, i+1) }},
	{"an event comes twice", func(e []event, i int) []event { return slices.Insert(e, i, e[i]) }},
	{"two events change places", func(e []event, i int) []event { e[i], e[i+1] = e[i+1], e[i]; return e }},
	{"an event has another type", func(e []event, i int) []event {
		e[i].typ = map[string]string{"ADDED": "MODIFIED", "MODIFIED": "ADDED", "DELETED": "MODIFIED"}[e[i].typ]
		return e
	}},
	{"an event has another resourceVersion", func(e []event, i int) []event { e[i].rv++; return e }},
	{"an event shows another object", func(e []event, i int) []event { e[i].key += "x"; return e }},
	{"an object has another content", func(e []event, i int) []event { e[i].content[0]++; return e }},
	{"an object has other bytes", func(e []event, i int) []event { e[i].bytes[0]++; return e }},
	{"a bookmark is one ahead", func(e []event, i int) []event { return slices.Insert(e, i, event{typ: "BOOKMARK", rv: e[i].rv}) }},
	{"a bookmark goes back", func(e []event, i int) []event {
		return slices.Insert(e, i+1, event{typ: "BOOKMARK", rv: e[i].rv - 1})
	}},
}

// historyOf makes a truth of random changes.
func historyOf(t *testing.T, rng *rand.Rand, changes int) *truth {
	t.Helper()
	tr, lives := newTruth(), make(map[string]int)
	for rv := uint64(1); rv <= uint64(changes); rv++ {
		e := etcdEvent{}
		e.KV.ModRevision = rv
		name := fmt.Sprint("w", rng.IntN(5))
		e.KV.Key = []byte("/registry/example.com/widgets/ns/" + name)
		if o := tr.last("widgets", "ns/"+name); o != nil && o.name != "" && rng.IntN(5) == 0 {
			e.Type = "DELETE"
			lives[name]++
		}
		e.KV.Value = fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"ns","uid":"%s","labels":{"app":%q},`+
			`"managedFields":[{"manager":"m%d"}]},"spec":%d}`,
			name, digestBytes(fmt.Append(nil, name, lives[name])), []string{"a", "b"}[rng.IntN(2)], rv%3, rv)
		if err := tr.add([]etcdEvent{e}); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// stream returns what a correct server sends behind rv, with a bookmark now and then.
func stream(tr *truth, f filter, rv uint64) (events []event) {
	for {
		want, ok := tr.next(f, rv)
		if !ok {
			return events
		}
		rv = want.rv
		events = append(events, sentAs(want))
		if rv%7 == 0 {
			events = append(events, event{typ: "BOOKMARK", rv: rv})
		}
	}
}

func sentAs(w told) event {
	bytes := func(form string) digest { return digestBytes(fmt.Appendf(nil, "%s %d %s", w.key, w.rv, form)) }
	return event{typ: w.typ, rv: w.rv, key: w.key, shown: shown{w.as.whole.full, bytes("whole")},
		less: shown{w.as.lean.full, bytes("lean")}}
}

// lean returns the events as they are sent without managedFields.
func lean(events []event) []event {
	events = slices.Clone(events)
	for i := range events {
		events[i].shown, events[i].inLean = events[i].less, true
	}
	return events
}

func take(c *cursor, events []event) error {
	for _, e := range events {
		if err := c.take(e); err != nil {
			return err
		}
	}
	return c.settled()
}

// TestOracleNotices: the oracle accepts what a correct server sends, and nothing else.
func TestOracleNotices(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	tr := historyOf(t, rng, 300)
	for _, f := range []filter{newFilter("widgets", "", "", ""), newFilter("widgets", "ns", "app=a", ""),
		newFilter("widgets", "", "", "metadata.name=w1")} {
		right := stream(tr, f, 40)
		o := newOracle(tr)
		if err := take(&cursor{oracle: o, form: jsonForm, filter: f, last: 40}, right); err != nil {
			t.Fatalf("%s: a right stream: %v", f, err)
		}
		var changes []int
		for i, e := range right[:len(right)-3] {
			if i > 0 && e.typ != "BOOKMARK" && right[i+1].typ != "BOOKMARK" {
				changes = append(changes, i)
			}
		}
		for _, m := range mutations {
			for range 20 {
				i := changes[rng.IntN(len(changes))]
				c := &cursor{oracle: o, form: jsonForm, filter: f, last: 40, leaps: true, relists: new(relists)}
				if err := take(c, m.do(slices.Clone(right), i)); err == nil {
					t.Errorf("%s: the oracle does not notice at %d of %d that %s", f, i, len(right), m.name)
				}
			}
		}
	}
}

// TestOracleNoticesLean: without managedFields, the oracle accepts exactly the objects that others
// receive with them, less the field. A stream with whole objects has to be whole.
func TestOracleNoticesLean(t *testing.T) {
	t.Parallel()
	tr := historyOf(t, rand.New(rand.NewPCG(3, 3)), 100)
	f := newFilter("widgets", "", "", "")
	whole := stream(tr, f, 40)
	at := slices.IndexFunc(whole[9:], func(e event) bool { return e.typ != "BOOKMARK" }) + 9
	with := func(events []event, change func(*event)) []event {
		events = slices.Clone(events)
		change(&events[at])
		return events
	}
	for name, c := range map[string]struct {
		events []event
		wrong  string
	}{
		"whole":                   {whole, ""},
		"lean":                    {lean(whole), ""},
		"managedFields stay once": {with(lean(whole), func(e *event) { e.shown = whole[at].shown }), "not what etcd has"},
		"managedFields go once":   {with(whole, func(e *event) { e.shown = e.less }), "not what etcd has"},
		"bytes differ":            {with(lean(whole), func(e *event) { e.bytes[0]++; e.less.bytes[0]++ }), "other bytes"},
		"bytes are whole": {with(lean(whole), func(e *event) { e.bytes, e.less.bytes = whole[at].bytes, whole[at].bytes }),
			"other bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOracle(tr)
			if err := take(&cursor{oracle: o, form: jsonForm, filter: f, last: 40}, whole); err != nil {
				t.Fatalf("straight: %v", err)
			}
			client := &cursor{oracle: o, form: jsonForm.dropping(), filter: f, last: 40, leaps: true, relists: new(relists)}
			err := take(client, c.events)
			if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("got %v, want %q", err, c.wrong)
			}
			if n := o.counts.of("versions with these less managedFields"); name == "lean" && n != len(changesOf(whole)) {
				t.Errorf("%d lean versions were compared, want %d", n, len(changesOf(whole)))
			}
		})
	}
}

// changesOf returns the events that are no bookmarks.
func changesOf(events []event) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.typ == "BOOKMARK" })
}

// TestOracleNoticesHalves: two halves have everything together and nothing twice. The oracle notices
// an event of the other half, and one that is in neither.
func TestOracleNoticesHalves(t *testing.T) {
	t.Parallel()
	tr := historyOf(t, rand.New(rand.NewPCG(4, 4)), 300)
	for _, f := range []filter{newFilter("widgets", "", "", ""), newFilter("widgets", "ns", "app=a", "")} {
		taken := func(h half, events []event) error {
			return take(&cursor{oracle: newOracle(tr), form: jsonForm, filter: f.of(h), last: 40, leaps: true,
				relists: new(relists)}, events)
		}
		halves := map[half][]event{lowerHalf: stream(tr, f.of(lowerHalf), 40), upperHalf: stream(tr, f.of(upperHalf), 40)}
		union := slices.Concat(changesOf(halves[lowerHalf]), changesOf(halves[upperHalf]))
		slices.SortFunc(union, func(a, b event) int { return cmp.Compare(a.rv, b.rv) })
		if !slices.Equal(union, changesOf(stream(tr, f, 40))) {
			t.Fatalf("%s: the halves' events are not all events", f)
		}
		for h, right := range halves {
			if err := taken(h, right); err != nil || len(changesOf(right)) < len(union)/4 {
				t.Fatalf("%s: a right stream of %d events: %v", f.of(h), len(right), err)
			}
			for _, e := range changesOf(right) {
				i := slices.IndexFunc(right, func(one event) bool { return one.rv == e.rv })
				if taken(h, slices.Delete(slices.Clone(right), i, i+1)) == nil {
					t.Errorf("%s: the oracle does not notice that %s is in neither half", f, e)
				}
				other := lowerHalf + upperHalf - h
				i = slices.IndexFunc(halves[other], func(one event) bool { return one.rv >= e.rv })
				if i >= 0 && taken(other, slices.Insert(slices.Clone(halves[other]), i, e)) == nil {
					t.Errorf("%s: the oracle does not notice %s, which is of the other half", f.of(other), e)
				}
			}
		}
	}
}

// TestOracleLeaps: where a lane has listed again, a client may receive the differences, all of them
// and no others. Where it has not, the client may not.
func TestOracleLeaps(t *testing.T) {
	t.Parallel()
	tr := historyOf(t, rand.New(rand.NewPCG(2, 2)), 300)
	f := newFilter("widgets", "", "app=a", "")
	const from, to = 120, 160
	removals, versions := tr.differences(f, from, to)
	var before []event
	for _, e := range stream(tr, f, 40) {
		if e.rv <= from {
			before = append(before, e)
		}
	}
	gone := func(at uint64) (events []event) {
		for _, w := range removals {
			w.rv = at
			events = append(events, sentAs(w))
		}
		return events
	}
	var fresh []event
	for _, w := range versions {
		fresh = append(fresh, sentAs(w))
	}
	if len(removals) < 2 || len(versions) < 2 {
		t.Fatalf("%v and %v are no good differences", removals, versions)
	}
	next, _ := tr.next(f, from)
	old := before[len(before)-1].rv
	after := stream(tr, f, to)
	listed := new(relists)
	listed.add(laneNames["widgets"], jsonForm.name, to)
	join := func(parts ...[]event) []event {
		return slices.Concat(append([][]event{before}, append(parts, after)...)...)
	}
	for name, c := range map[string]struct {
		relists *relists
		events  []event
		wrong   string
	}{
		"all differences":              {listed, join(gone(from), fresh), ""},
		"as of what was told last":     {listed, join(gone(old), fresh), ""},
		"a removal is missing":         {listed, join(gone(from)[1:], fresh), "list as of"},
		"a version is missing":         {listed, join(gone(from), fresh[1:]), "list as of"},
		"versions come first":          {listed, join(fresh, gone(to)), "list as of"},
		"removals are as of the list":  {listed, join(gone(to), fresh), "another resourceVersion"},
		"removals are as of too early": {listed, join(gone(old-1), fresh), "repetition"},
		"removals are as of two": {listed, join(gone(old)[:1], gone(from)[1:], fresh),
			"another resourceVersion"},
		"a bookmark is among removals": {listed,
			join(gone(from)[:1], []event{{typ: "BOOKMARK", rv: from}}, gone(from)[1:], fresh), ""},
		"a bookmark is ahead of one": {listed,
			join(gone(from)[:1], []event{{typ: "BOOKMARK", rv: next.rv}}, gone(from)[1:], fresh), "ahead"},
		"a bookmark is ahead of a version": {listed,
			join(gone(from), fresh[:1], []event{{typ: "BOOKMARK", rv: fresh[1].rv}}, fresh[1:]), "ahead"},
		"nobody has listed": {new(relists), join(gone(from), fresh), "no list explains it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := take(&cursor{oracle: newOracle(tr), form: jsonForm, filter: f, last: 40, leaps: true, relists: c.relists},
				c.events)
			if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("got %v, want %q", err, c.wrong)
			}
		})
	}
}

// TestOracleSkips: a list that shows every change undone has no differences, so the client's next event
// is from behind it. If a change is left, the client must be told.
func TestOracleSkips(t *testing.T) {
	t.Parallel()
	tr := historyOf(t, rand.New(rand.NewPCG(2, 2)), 300)
	f := newFilter("widgets", "", "app=a", "")
	undone := 0
	for _, first := range stream(tr, f, 40) {
		for to := first.rv; first.typ != "BOOKMARK" && to < first.rv+20 && to < 280; to++ {
			listed := new(relists)
			listed.add(laneNames["widgets"], jsonForm.name, to)
			c := &cursor{oracle: newOracle(tr), form: jsonForm, filter: f, last: first.rv - 1, leaps: true, relists: listed}
			gone, versions := tr.differences(f, first.rv-1, to)
			err := take(c, stream(tr, f, to))
			if left := len(gone) + len(versions); (left == 0) != (err == nil) {
				t.Fatalf("behind %d, a list as of %d has %d differences, none of which comes: %v", first.rv-1, to, left, err)
			} else if left == 0 {
				undone++
			}
		}
	}
	if undone < 10 {
		t.Errorf("%d lists show everything undone: this shows little", undone)
	}
}
