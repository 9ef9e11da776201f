package chaos_test

import (
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

// cursorAt returns the cursor of a client of watchfan's that knows the state as of rv.
func cursorAt(o *oracle, as form, f filter, rv uint64, lists *relists) *cursor {
	return &cursor{oracle: o, form: as, filter: f, last: rv, leaps: true, relists: lists}
}

func take(c *cursor, events []event) error {
	for _, e := range events {
		if err := c.take(e); err != nil {
			return err
		}
	}
	return c.settled()
}

// changesOf returns the events that are no bookmarks.
func changesOf(events []event) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.typ == "BOOKMARK" })
}

// TestOracleNotices: the oracle accepts what a correct server sends, and nothing else.
func TestOracleNotices(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	tr := historyOf(t, rng, 300)
	all, some := newFilter("widgets", "", "", ""), newFilter("widgets", "ns", "app=a", "")
	for _, f := range []filter{all, some, newFilter("widgets", "", "", "metadata.name=w1"), all.of(lowerHalf), all.of(upperHalf),
		some.of(lowerHalf), some.of(upperHalf)} {
		right, o := stream(tr, f, 40), newOracle(tr)
		notice := func(events []event, mistake string) {
			if err := take(cursorAt(o, jsonForm, f, 40, new(relists)), events); (err == nil) != (mistake == "") {
				t.Errorf("%s: got %v, and the mistake is %q", f, err, mistake)
			}
		}
		notice(right, "")
		var changes []int
		for i, e := range right[:len(right)-3] {
			if i > 0 && e.typ != "BOOKMARK" && right[i+1].typ != "BOOKMARK" {
				changes = append(changes, i)
			}
		}
		for _, m := range mutations {
			for range 20 {
				i := changes[rng.IntN(len(changes))]
				notice(m.do(slices.Clone(right), i), fmt.Sprintf("at %d of %d %s", i, len(right), m.name))
			}
		}
		for _, e := range changesOf(stream(tr, all, 40)) {
			i := slices.IndexFunc(right, func(one event) bool { return one.rv >= e.rv })
			if i >= 0 && right[i].rv != e.rv {
				notice(slices.Insert(slices.Clone(right), i, e), fmt.Sprintf("%s comes, which is not selected", e))
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
	lean := slices.Clone(whole)
	for i := range lean {
		lean[i].shown, lean[i].inLean = lean[i].less, true
	}
	at := slices.IndexFunc(whole, func(e event) bool { return e.rv > 50 && e.typ != "BOOKMARK" })
	with := func(events []event, change func(*event)) []event {
		events = slices.Clone(events)
		change(&events[at])
		return events
	}
	for name, c := range map[string]struct {
		events []event
		wrong  string
	}{
		"whole":                   {whole, "<nil>"},
		"lean":                    {lean, "<nil>"},
		"managedFields stay once": {with(lean, func(e *event) { e.shown = whole[at].shown }), "not what etcd has"},
		"managedFields go once":   {with(whole, func(e *event) { e.shown = e.less }), "not what etcd has"},
		"bytes differ":            {with(lean, func(e *event) { e.bytes[0]++; e.less.bytes[0]++ }), "other bytes"},
		"bytes are whole":         {with(lean, func(e *event) { e.bytes, e.less.bytes = whole[at].bytes, whole[at].bytes }), "other bytes"},
	} {
		o := newOracle(tr)
		straight := take(&cursor{oracle: o, form: jsonForm, filter: f, last: 40}, whole)
		err := take(cursorAt(o, jsonForm.dropping(), f, 40, new(relists)), c.events)
		if straight != nil || !strings.Contains(fmt.Sprint(err), c.wrong) {
			t.Errorf("%s: got %v, want %q; straight: %v", name, err, c.wrong, straight)
		}
		if n := o.counts.of("versions with these less managedFields"); name == "lean" && n != len(changesOf(whole)) {
			t.Errorf("%d lean versions were compared, want %d", n, len(changesOf(whole)))
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
	before := slices.DeleteFunc(stream(tr, f, 40), func(e event) bool { return e.rv > from })
	after := stream(tr, f, to)
	removals, versions := tr.differences(f, from, to)
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
	bookmark := func(rv uint64) []event { return []event{{typ: "BOOKMARK", rv: rv}} }
	type parts [][]event
	for name, c := range map[string]struct {
		parts
		wrong string
	}{
		"all differences":                  {parts{gone(from), fresh}, "<nil>"},
		"as of what was told last":         {parts{gone(old), fresh}, "<nil>"},
		"a removal is missing":             {parts{gone(from)[1:], fresh}, "list as of"},
		"a version is missing":             {parts{gone(from), fresh[1:]}, "list as of"},
		"versions come first":              {parts{fresh, gone(to)}, "list as of"},
		"versions change places":           {parts{gone(from), fresh[1:2], fresh[:1], fresh[2:]}, "list as of"},
		"removals are as of the list":      {parts{gone(to), fresh}, "another resourceVersion"},
		"removals are as of too early":     {parts{gone(old - 1), fresh}, "repetition"},
		"removals are as of two":           {parts{gone(old)[:1], gone(from)[1:], fresh}, "another resourceVersion"},
		"a bookmark is among removals":     {parts{gone(from)[:1], bookmark(from), gone(from)[1:], fresh}, "<nil>"},
		"a bookmark is ahead of one":       {parts{gone(from)[:1], bookmark(next.rv), gone(from)[1:], fresh}, "ahead"},
		"a bookmark is ahead of a version": {parts{gone(from), fresh[:1], bookmark(fresh[1].rv), fresh[1:]}, "ahead"},
		"nobody has listed":                {parts{gone(from), fresh}, "no list explains it"},
	} {
		listed := new(relists)
		if name != "nobody has listed" {
			listed.add(laneNames["widgets"], jsonForm.name, to)
		}
		err := take(cursorAt(newOracle(tr), jsonForm, f, 40, listed), slices.Concat(before, slices.Concat(c.parts...), after))
		if !strings.Contains(fmt.Sprint(err), c.wrong) {
			t.Errorf("%s: got %v, want %q", name, err, c.wrong)
		}
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
			gone, versions := tr.differences(f, first.rv-1, to)
			err := take(cursorAt(newOracle(tr), jsonForm, f, first.rv-1, listed), stream(tr, f, to))
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
