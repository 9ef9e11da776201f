package main

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// good returns the record of a run without a violation, and what it tells.
func good(t *testing.T) ([]line, *trial) {
	t.Helper()
	lines, err := readRecord(filepath.Join("testdata", "good.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	one, err := newTrial(lines)
	if err != nil {
		t.Fatal(err)
	}
	return lines, one
}

func judging(t *testing.T) judge { return judge{filepath.Join(t.TempDir(), "reports"), time.Minute} }

// judged returns what the validators find in a record, from which prepare may take something.
func judged(t *testing.T, lines []line, prepare ...func(*trial)) []finding {
	t.Helper()
	one, err := newTrial(lines)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range prepare {
		f(one)
	}
	findings, err := judging(t).try(one)
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// TestGood: the validators accept the record, which has something of everything.
func TestGood(t *testing.T) {
	_, one := good(t)
	j := judging(t)
	findings, err := j.try(one)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
	var all counts
	for _, clients := range one.clients {
		for _, c := range clients {
			all.add(c.counts)
		}
	}
	if slices.Contains([]int{all.resumed, all.bookmarks, all.initial, all.lists, all.gets, all.views, all.relists}, 0) {
		t.Errorf("this shows nothing of something: %s", one.summary())
	}
	if _, err := os.Stat(j.dir); err == nil {
		t.Error("there are reports without a violation")
	}
}

// TestGhost: what a client holds behind differences that broke off is a finding, but not a
// violation.
func TestGhost(t *testing.T) {
	all := &scope{Resource: "widgets"}
	lines := []line{
		{Kind: "change", RV: 2, At: 10, Key: "widgets/ns/a", Value: "a2"},
		{Kind: "change", RV: 3, At: 11, Key: "widgets/ns/b", Value: "b3"},
		{Kind: "read", Client: "w", At: 12, Until: 13, RV: 3, Scope: all,
			Objects: []shown{{"ns/a", 2, "a2"}, {"ns/b", 3, "b3"}}},
		{Kind: "change", RV: 4, At: 14, Key: "widgets/ns/a"},
		{Kind: "change", RV: 5, At: 15, Key: "widgets/ns/b", Value: "b5"},
		{Kind: "watch", Client: "w", At: 16, Scope: all, Asked: "3"},
		{Kind: "event", Client: "w", At: 17, Type: "MODIFIED", Key: "ns/b", RV: 5, Value: "b5", Relist: 5, More: true},
		{Kind: "end", Client: "w", At: 18},
		{Kind: "change", RV: 6, At: 19, Key: "widgets/ns/b", Value: "b6"},
		{Kind: "watch", Client: "w", At: 20, Scope: all, Asked: "5"},
		{Kind: "event", Client: "w", At: 21, Type: "MODIFIED", Key: "ns/b", RV: 6, Value: "b6"},
		{Kind: "end", Client: "w", At: 22},
	}
	if findings := judged(t, lines); len(findings) != 1 || !findings[0].ghost || !strings.Contains(findings[0].err.Error(), "serializable") {
		t.Errorf("got %v, want one ghost", findings)
	}
}

// TestInversion: of two reads while a write is under way, the later may not miss what the earlier
// has seen. Each alone is possible.
func TestInversion(t *testing.T) {
	all := &scope{Resource: "widgets"}
	before, behind := []shown{{"ns/a", 2, "a2"}}, []shown{{"ns/a", 3, "a3"}}
	for name, c := range map[string]struct {
		first, second []shown
		findings      int
	}{
		"both before":       {before, before, 0},
		"before and behind": {before, behind, 0},
		"both behind":       {behind, behind, 0},
		"behind and before": {behind, before, 1},
	} {
		findings := judged(t, []line{
			{Kind: "change", RV: 2, At: 10, Key: "widgets/ns/a", Value: "a2"},
			{Kind: "read", Client: "r", At: 20, Until: 30, RV: c.first[0].RV, Scope: all, Objects: c.first},
			{Kind: "read", Client: "s", At: 40, Until: 50, RV: c.second[0].RV, Scope: all, Objects: c.second},
			{Kind: "change", RV: 3, At: 1000, Key: "widgets/ns/a", Value: "a3"},
			{Kind: "write", Client: "w", At: 15, Until: 1010, RV: 3},
		})
		if len(findings) != c.findings {
			t.Errorf("%s: got %v, want %d", name, findings, c.findings)
		}
	}
}

// TestSelections: a client of a half is shown the objects of that half, and a lean one is shown their
// lean content.
func TestSelections(t *testing.T) {
	lines := []line{
		{Kind: "change", RV: 2, At: 10, Key: "widgets/ns/a", Value: "a", Meta: "am", Lean: "al", Scant: "as", Half: 1},
		{Kind: "change", RV: 3, At: 11, Key: "widgets/ns/b", Value: "b", Meta: "bm", Lean: "bl", Scant: "bs", Half: 2},
	}
	for name, c := range map[string]struct {
		scope   scope
		objects []shown
		right   bool
	}{
		"everything":              {scope{}, []shown{{"ns/a", 2, "a"}, {"ns/b", 3, "b"}}, true},
		"lean":                    {scope{Lean: true}, []shown{{"ns/a", 2, "al"}, {"ns/b", 3, "bl"}}, true},
		"lean with managedFields": {scope{Lean: true}, []shown{{"ns/a", 2, "al"}, {"ns/b", 3, "b"}}, false},
		"lean metadata":           {scope{Lean: true, Metadata: true}, []shown{{"ns/a", 2, "as"}, {"ns/b", 3, "bs"}}, true},
		"lower half":              {scope{Half: 1}, []shown{{"ns/a", 2, "a"}}, true},
		"lean upper half":         {scope{Half: 2, Lean: true}, []shown{{"ns/b", 3, "bl"}}, true},
		"half with the other":     {scope{Half: 1}, []shown{{"ns/a", 2, "a"}, {"ns/b", 3, "b"}}, false},
		"half without its object": {scope{Half: 2}, nil, false},
	} {
		c.scope.Resource = "widgets"
		findings := judged(t, append(slices.Clone(lines),
			line{Kind: "read", Client: "r", At: 12, Until: 13, RV: 3, Asked: "0", Scope: &c.scope, Objects: c.objects}))
		if (len(findings) == 0) != c.right {
			t.Errorf("%s: got %v", name, findings)
		}
	}
}

// TestQuiet: in the world of the quiet view each mistake of a view is noticed: whoever is told too much,
// too little, or something else.
func TestQuiet(t *testing.T) {
	view, in, out := &scope{Resource: "widgets", Quiet: true, Labels: "app!=c"}, map[string]string{"app": "a"}, map[string]string{"app": "c"}
	history := []line{
		{RV: 2, Key: "widgets/ns/a", Value: "a2", Quiet: "a", Labels: in},
		{RV: 3, Key: "widgets/ns/b", Value: "b3", Quiet: "b", Labels: in},
		{RV: 4, Key: "widgets/ns/a", Value: "a4", Quiet: "a", Labels: in}, // is quiet
		{RV: 5, Key: "widgets/ns/a", Value: "a5", Quiet: "A", Labels: in},
		{RV: 6, Key: "widgets/ns/b", Value: "b6", Quiet: "B", Labels: out}, // leaves
		{RV: 7, Key: "widgets/ns/a", Value: "a7", Quiet: "A", Labels: in},  // is quiet
		{RV: 8, Key: "widgets/ns/b", Value: "b8", Quiet: "b", Labels: in},  // enters
		{RV: 9, Key: "widgets/ns/a"},
		{RV: 10, Key: "widgets/ns/b", Value: "b10", Quiet: "C", Labels: in},
		{RV: 11, Key: "widgets/ns/b", Value: "b11", Quiet: "D", Labels: in},
		{RV: 12, Key: "widgets/ns/b", Value: "b12", Quiet: "C", Labels: in}, // is as before
		{RV: 13, Key: "widgets/ns/c", Value: "c13", Quiet: "c", Labels: in},
	}
	for i := range history {
		history[i].Kind, history[i].At = "change", int64(10+i)
	}
	told := []line{
		{Type: "MODIFIED", RV: 5, Key: "ns/a", Value: "A"}, {Type: "DELETED", RV: 6, Key: "ns/b", Value: "b"},
		{Type: "ADDED", RV: 8, Key: "ns/b", Value: "b"}, {Type: "DELETED", RV: 9, Key: "ns/a", Value: "A"},
		{Type: "MODIFIED", RV: 10, Key: "ns/b", Value: "C"}, {Type: "BOOKMARK", RV: 10},
		{Type: "ADDED", RV: 13, Key: "ns/c", Value: "c", Relist: 13},
	}
	changed := func(i int, to line) []line { return slices.Replace(slices.Clone(told), i, i+1, to) }
	without := func(i int) []line { return slices.Delete(slices.Clone(told), i, i+1) }
	before := func(i int, l line) []line { return slices.Insert(slices.Clone(told), i, l) }
	for name, c := range map[string]struct {
		events []line
		held   []shown // as of 4, when the client begins
		says   string
	}{
		"what is right":                     {told, []shown{{"ns/a", 4, "a"}, {"ns/b", 3, "b"}}, ""},
		"an older resourceVersion is right": {told, []shown{{"ns/a", 2, "a"}, {"ns/b", 3, "b"}}, ""},
		"a change is not told":              {without(0), nil, "broke Reliable|broke Resumable"},
		"a quiet one is told":               {before(2, line{Type: "MODIFIED", RV: 7, Key: "ns/a", Value: "A"}), nil, "broke|incorrect event"},
		"one is told with a later version":  {slices.Insert(without(0), 1, line{Type: "MODIFIED", RV: 7, Key: "ns/a", Value: "A"}), nil, "broke|incorrect event"},
		"one is told behind a later one":    {swap(slices.Clone(told), []int{0, 1}), nil, "broke Ordered"},
		"one is told twice":                 {before(0, told[0]), nil, "broke Unique"},
		"one is told behind a bookmark":     {before(0, line{Type: "BOOKMARK", RV: 5}), nil, "broke Bookmarkable"},
		"one that leaves is not told":       {without(1), nil, "broke"},
		"one that leaves is modified":       {changed(1, line{Type: "MODIFIED", RV: 6, Key: "ns/b", Value: "B"}), nil, "broke|incorrect event"},
		"one that leaves is as it is now":   {changed(1, line{Type: "DELETED", RV: 6, Key: "ns/b", Value: "B"}), nil, "incorrect event prevValue"},
		"one that enters is not told":       {without(2), nil, "broke"},
		"one that enters is modified":       {changed(2, line{Type: "MODIFIED", RV: 8, Key: "ns/b", Value: "b"}), nil, "broke|incorrect event"},
		"a deletion is not told":            {without(3), nil, "broke"},
		"a deletion has the whole object":   {changed(3, line{Type: "DELETED", RV: 9, Key: "ns/a", Value: "a7"}), nil, "incorrect event prevValue"},
		"a change shows the whole object":   {changed(0, line{Type: "MODIFIED", RV: 5, Key: "ns/a", Value: "a5"}), nil, "broke"},
		"a relist lacks one":                {changed(6, line{Type: "MODIFIED", RV: 13, Key: "ns/b", Value: "C", Relist: 13}), nil, "serializable"},
		"a relist shows a state before":     {changed(6, line{Type: "ADDED", RV: 11, Key: "ns/c", Value: "c", Relist: 11}), nil, "serializable"},
		"a list shows what is not visible":  {told, []shown{{"ns/a", 4, "a4"}, {"ns/b", 3, "b"}}, "serializable"},
		"a list shows a later state":        {told, []shown{{"ns/a", 4, "A"}, {"ns/b", 3, "b"}}, "serializable"},
		"a list lacks one":                  {told, []shown{{"ns/a", 4, "a"}}, "serializable"},
	} {
		if c.held == nil {
			c.held = []shown{{"ns/a", 4, "a"}, {"ns/b", 3, "b"}}
		}
		lines := append(slices.Clone(history), line{Kind: "read", Client: "w", At: 30, Until: 31, RV: 4, Asked: "0", Scope: view, Objects: c.held},
			line{Kind: "watch", Client: "w", At: 32, Scope: view, Asked: "4"})
		for _, e := range c.events {
			e.Kind, e.Client, e.At = "event", "w", int64(33+len(lines))
			lines = append(lines, e)
		}
		findings := judged(t, append(lines, line{Kind: "end", Client: "w", At: 100}))
		says := regexp.MustCompile(c.says)
		if c.says == "" && len(findings) > 0 || c.says != "" && !slices.ContainsFunc(findings, func(f finding) bool { return says.MatchString(f.err.Error()) }) {
			t.Errorf("%s: got %v, want %q", name, findings, c.says)
		}
	}
}

// stretch is a stream in a record, as places of lines.
type stretch struct {
	watch   int
	initial []int // and the bookmark that ends them
	live    []int // the events and bookmarks behind that, which no list explains
	relist  []int // the differences of a list
	resumed bool
}

// stretches returns the streams of a record.
func stretches(lines []line) (all []stretch) {
	open, before := make(map[string]*stretch), make(map[string]bool)
	for i, l := range lines {
		s := open[l.Client]
		switch {
		case l.Kind == "watch":
			open[l.Client] = &stretch{watch: i, resumed: !l.Initial && before[l.Client]}
			before[l.Client] = true
		case l.Kind == "read":
			before[l.Client] = false
		case l.Kind == "end":
			all = append(all, *s)
		case l.Kind != "event" || l.Type == "ERROR":
		case lines[s.watch].Initial && (len(s.initial) == 0 || !lines[s.initial[len(s.initial)-1]].Initial):
			s.initial = append(s.initial, i)
		case l.Relist != 0:
			s.relist = append(s.relist, i)
		default:
			s.live = append(s.live, i)
		}
	}
	return all
}

// mutant is a mistake that a server may make. make returns nil if the record has no place for it,
// and chooses one with rng otherwise.
type mutant struct {
	name string
	says string // regular expression of what a validator says
	make func(lines []line, one *trial, rng *rand.Rand) []line
}

var mutants = []mutant{
	{"an event is dropped", "broke Reliable|broke Resumable", live(1, 1, func(lines []line, at []int) []line {
		return slices.Delete(lines, at[1], at[1]+1)
	})},
	{"an event comes twice", "broke Unique", live(0, 0, func(lines []line, at []int) []line {
		return slices.Insert(lines, at[0], lines[at[0]])
	})},
	{"two events change places", "broke Ordered", live(0, 1, swap)},
	{"a bookmark comes too early", "broke Bookmarkable", bookmarked(swap)},
	{"a resumed watch skips an event", "broke Resumable", some(func(lines []line, s stretch) (at [][]int) {
		if s.resumed && len(s.live) > 1 && len(s.relist) == 0 && !isBookmark(lines, s.live[0]) && !isBookmark(lines, s.live[1]) {
			at = append(at, s.live[:1])
		}
		return at
	}, remove)},
	{"a consistent list is stale", "linearization: Failure", reading("", false, func(l line, one *trial) (line, bool) {
		return as(l, one, one.history.known(l.At)-1), true
	})},
	{"a consistent get is stale", "linearization: Failure", reading("", true, staleGet)},
	{"a consistent list is from the future", "linearization: Failure", reading("", false, func(l line, one *trial) (line, bool) {
		i := slices.IndexFunc(one.history.revisions, func(r revision) bool { return r.since >= l.Until })
		if i < 0 {
			return l, false
		}
		return as(l, one, one.history.revisions[i].rv), true // the first that was certainly committed later
	})},
	{"a list at 0 is of another state than it says", "serializable: Failure", reading("0", false, func(l line, one *trial) (line, bool) {
		if len(l.Objects) == 0 {
			return l, false
		}
		other := as(l, one, l.Objects[0].RV-1)
		other.RV = l.RV
		return other, true
	})},
	{"initial events lack an object", "serializable: Failure", some(initial, remove)},
	{"initial events end too early", "watch: Failure: broke", some(initial, func(lines []line, at []int) []line {
		return swap(lines, at[len(at)-2:])
	})},
	{"a list's differences lack one", "serializable: Failure", some(func(lines []line, s stretch) (at [][]int) {
		for _, i := range s.relist {
			if lines[i].More && !isBookmark(lines, i) {
				at = append(at, []int{i})
			}
		}
		return at
	}, remove)},
	{"an event has another type", "incorrect event IsCreate|broke Resumable", live(0, 0, edit(func(l *line, _ scope) bool {
		l.Type = map[string]string{"ADDED": "MODIFIED", "MODIFIED": "ADDED"}[l.Type]
		return l.Type != ""
	}))},
	{"an object has another content", "broke Reliable|broke Resumable", live(1, 0, edit(func(l *line, _ scope) bool {
		l.Value = "other"
		return l.Type != "DELETED"
	}))},
	{"a deleted object has another content", "incorrect event prevValue", live(0, 0, edit(func(l *line, _ scope) bool {
		l.Value = "other"
		return l.Type == "DELETED"
	}))},
	{"an event is of another namespace", "event not matching watch filter", live(0, 0, edit(func(l *line, s scope) bool {
		l.Key = "elsewhere/object"
		return s.Namespace != ""
	}))},
	{"an event never happened", "broke Ordered", live(0, 0, edit(func(l *line, _ scope) bool {
		l.RV += 1_000_000
		return true
	}))},
}

// edit changes the last line of at, unless change says that it does not suit.
func edit(change func(l *line, s scope) bool) func([]line, []int) []line {
	return func(lines []line, at []int) []line {
		l, i := &lines[at[len(at)-1]], at[0]
		for lines[i].Kind != "watch" || lines[i].Client != l.Client {
			i--
		}
		if !change(l, *lines[i].Scope) {
			return nil
		}
		return lines
	}
}

func remove(lines []line, at []int) []line { return slices.Delete(lines, at[0], at[0]+1) }

func swap(lines []line, at []int) []line {
	lines[at[0]], lines[at[1]] = lines[at[1]], lines[at[0]]
	return lines
}

// live mutates events in the middle of a stream: do gets the places of one event, with so many
// events before and behind it that the stream has as well.
func live(before, behind int, do func(lines []line, at []int) []line) func([]line, *trial, *rand.Rand) []line {
	return some(func(lines []line, s stretch) (at [][]int) {
		for i := before; i < len(s.live)-max(behind, 1); i++ {
			window := s.live[i-before : i+behind+1]
			marked := slices.ContainsFunc(window, func(i int) bool { return isBookmark(lines, i) })
			if !marked && !isBookmark(lines, s.live[i+1]) {
				at = append(at, window)
			}
		}
		return at
	}, do)
}

func isBookmark(lines []line, i int) bool { return lines[i].Type == "BOOKMARK" }

// bookmarked mutates an event and a bookmark behind it.
func bookmarked(do func(lines []line, at []int) []line) func([]line, *trial, *rand.Rand) []line {
	return some(func(lines []line, s stretch) (at [][]int) {
		for i := 1; i < len(s.live); i++ {
			if isBookmark(lines, s.live[i]) && !isBookmark(lines, s.live[i-1]) {
				at = append(at, s.live[i-1:i+1])
			}
		}
		return at
	}, do)
}

// some calls do with one of the places that find returns for the streams.
func some(find func([]line, stretch) [][]int, do func([]line, []int) []line) func([]line, *trial, *rand.Rand) []line {
	return func(lines []line, _ *trial, rng *rand.Rand) []line {
		var all [][]int
		for _, s := range stretches(lines) {
			all = append(all, find(lines, s)...)
		}
		for _, i := range rng.Perm(len(all)) {
			if mutated := do(slices.Clone(lines), all[i]); mutated != nil {
				return mutated
			}
		}
		return nil
	}
}

// initial finds initial events, and the bookmark that ends them.
func initial(lines []line, s stretch) (at [][]int) {
	if n := len(s.initial); n > 2 && lines[s.initial[n-1]].Initial {
		at = append(at, s.initial)
	}
	return at
}

// reading calls do with the gets or lists that asked for a resourceVersion, until it changes one.
func reading(asked string, gets bool, do func(l line, one *trial) (line, bool)) func([]line, *trial, *rand.Rand) []line {
	return func(lines []line, one *trial, rng *rand.Rand) []line {
		lines = slices.Clone(lines)
		for _, i := range rng.Perm(len(lines)) {
			if l := lines[i]; l.Kind == "read" && l.Asked == asked && (l.Scope.Name != "") == gets {
				if changed, ok := do(l, one); ok {
					lines[i] = changed
					return lines
				}
			}
		}
		return nil
	}
}

// as replaces the answer of a list by the state as of rv.
func as(l line, one *trial, rv int64) line {
	w := one.worlds[l.Scope.selection()]
	l.RV, l.Objects = rv, nil
	for key := range w.versions {
		if v := w.version(key, rv); v.value != "" && strings.HasPrefix(key, l.Scope.prefix()) {
			l.Objects = append(l.Objects, shown{strings.TrimPrefix(key, "/"+w.resource+"/"), v.rv, v.value})
		}
	}
	slices.SortFunc(l.Objects, func(a, b shown) int { return strings.Compare(a.Key, b.Key) })
	return l
}

// staleGet makes a get show the version before one that the client could know of.
func staleGet(l line, one *trial) (line, bool) {
	w := one.worlds[l.Scope.selection()]
	now := w.version(l.Scope.prefix(), one.history.known(l.At))
	old := w.version(l.Scope.prefix(), now.rv-1)
	l.Objects = []shown{{strings.TrimPrefix(l.Scope.prefix(), "/"+w.resource+"/"), old.rv, old.value}}
	return l, old.value != ""
}

// keepWorlds forgets the worlds that the mutated client does not see: nothing has changed in them.
func keepWorlds(one *trial, lines, mutated []line) {
	i := 0
	for reflect.DeepEqual(lines[i], mutated[i]) {
		i++
	}
	maps.DeleteFunc(one.worlds, func(_ selection, w *world) bool {
		return !slices.ContainsFunc(one.clients[w], func(c *client) bool {
			return c.name == lines[i].Client || c.name == mutated[i].Client
		})
	})
}

// TestMutants: of each mistake the right validator says that it is one, and leaves a report.
func TestMutants(t *testing.T) {
	lines, one := good(t)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			for seed := range uint64(3) {
				mutated := m.make(lines, one, rand.New(rand.NewPCG(seed, 0)))
				if mutated == nil {
					t.Fatal("the record has no place for it")
				}
				findings := judged(t, mutated, func(other *trial) { keepWorlds(other, lines, mutated) })
				says := regexp.MustCompile(m.says)
				i := slices.IndexFunc(findings, func(f finding) bool { return says.MatchString(f.err.Error()) })
				if i < 0 {
					t.Fatalf("seed %d: got %v, want %q", seed, findings, m.says)
				}
				for _, name := range []string{"client-0/operations.json", "client-*[1-9]/*.json", "validators.log",
					"history.html"} {
					if found, err := filepath.Glob(filepath.Join(findings[i].dir, name)); len(found) == 0 {
						t.Errorf("no %s in the report: %v", name, err)
					}
				}
			}
		})
	}
}

// TestBadRecords: what cannot be judged is an error, and says why.
func TestBadRecords(t *testing.T) {
	const history = `{"kind":"change","rv":2,"at":5,"key":"widgets/ns/a","value":"x"}` + "\n"
	const done = `{"kind":"done"}`
	for name, c := range map[string]struct{ record, want string }{
		"empty":              {"", "has no end"},
		"broken off":         {history, "has no end"},
		"half a line":        {history + `{"kind":`, "unexpected EOF"},
		"unknown field":      {`{"kind":"run","sead":5}`, "sead"},
		"unknown kind":       {`{"kind":"walk"}` + done, "unknown kind"},
		"watch of nothing":   {`{"kind":"watch"}` + done, "without a scope"},
		"event of nothing":   {history + `{"kind":"event","client":"w"}` + done, "no stream"},
		"missing revision":   {history + `{"kind":"change","rv":4,"at":6}` + done, "revision 4 of etcd follows 2"},
		"revision too early": {`{"kind":"change","rv":1,"at":6}` + done, "follows 1"},
		"unknown write":      {history + `{"kind":"write","client":"w","rv":9}` + done, "does not have"},
		"impossible times":   {history + `{"kind":"write","client":"w","rv":2,"at":7,"until":8}` + done, "contradict"},
		"bad selector": {history + `{"kind":"watch","client":"w","scope":{"resource":"widgets","labels":"a in"}}` + done,
			"found"},
	} {
		lines, err := readLines(strings.NewReader(c.record))
		if err == nil {
			_, err = newTrial(lines)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
