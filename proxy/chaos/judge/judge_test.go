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
	one, err := newTrial(lines)
	if err != nil {
		t.Fatal(err)
	}
	findings, err := judging(t).try(one)
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) != 1 || !findings[0].ghost || !strings.Contains(findings[0].err.Error(), "serializable") {
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
		t.Run(name, func(t *testing.T) {
			one, err := newTrial([]line{
				{Kind: "change", RV: 2, At: 10, Key: "widgets/ns/a", Value: "a2"},
				{Kind: "read", Client: "r", At: 20, Until: 30, RV: c.first[0].RV, Scope: all, Objects: c.first},
				{Kind: "read", Client: "s", At: 40, Until: 50, RV: c.second[0].RV, Scope: all, Objects: c.second},
				{Kind: "change", RV: 3, At: 1000, Key: "widgets/ns/a", Value: "a3"},
				{Kind: "write", Client: "w", At: 15, Until: 1010, RV: 3},
			})
			if err != nil {
				t.Fatal(err)
			}
			findings, err := judging(t).try(one)
			if err != nil || len(findings) != c.findings {
				t.Errorf("got %v %v, want %d", findings, err, c.findings)
			}
		})
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
		t.Run(name, func(t *testing.T) {
			c.scope.Resource = "widgets"
			one, err := newTrial(append(slices.Clone(lines),
				line{Kind: "read", Client: "r", At: 12, Until: 13, RV: 3, Asked: "0", Scope: &c.scope, Objects: c.objects}))
			if err != nil {
				t.Fatal(err)
			}
			findings, err := judging(t).try(one)
			if err != nil || (len(findings) == 0) != c.right {
				t.Errorf("got %v %v", findings, err)
			}
		})
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
	{"a bookmark goes back", "broke Bookmarkable", bookmarked(func(lines []line, at []int) []line {
		lines[at[1]].RV = lines[at[0]].RV - 1
		return lines
	})},
	{"a bookmark hides an event", "broke Reliable", bookmarked(func(lines []line, at []int) []line {
		return slices.Delete(lines, at[0], at[0]+1)
	})},
	{"a resumed watch skips an event", "broke Resumable", resumed},
	{"a consistent list is stale", "linearization: Failure", staleList},
	{"a consistent get is stale", "linearization: Failure", staleGet},
	{"a consistent list is from the future", "linearization: Failure", futureList},
	{"a list at 0 is of another state than it says", "serializable: Failure", otherList},
	{"initial events show an old version", "serializable: Failure", torn(func(lines []line, at []int, one *trial) []line {
		for _, i := range at[:len(at)-1] {
			w := one.worlds[lines[at[0]].scopeOf(lines, at[0]).selection()]
			if old := w.version("/"+w.resource+"/"+lines[i].Key, lines[i].RV-1); old.value != "" {
				lines[i].RV, lines[i].Value = old.rv, old.value
				return lines
			}
		}
		return nil
	})},
	{"initial events lack an object", "serializable: Failure", torn(func(lines []line, at []int, _ *trial) []line {
		return slices.Delete(lines, at[0], at[0]+1)
	})},
	{"initial events end too early", "watch: Failure: broke", torn(func(lines []line, at []int, _ *trial) []line {
		last := at[len(at)-1]
		lines[last], lines[last-1] = lines[last-1], lines[last]
		return lines
	})},
	{"a list's differences lack one", "serializable: Failure", relisted},
	{"an event has another type", "incorrect event IsCreate|broke Resumable", live(0, 0, otherType)},
	{"an object has another content", "broke Reliable|broke Resumable", live(1, 0, otherContent)},
	{"a deleted object has another content", "incorrect event prevValue", live(0, 0, otherBefore)},
	{"an event is of another namespace", "event not matching watch filter", live(0, 0, otherNamespace)},
	{"an event never happened", "broke Ordered", live(0, 0, func(lines []line, at []int) []line {
		lines[at[0]].RV += 1_000_000
		return lines
	})},
}

// scopeOf returns the scope of the stream that has line i.
func (l line) scopeOf(lines []line, i int) scope {
	for ; ; i-- {
		if lines[i].Kind == "watch" && lines[i].Client == l.Client {
			return *lines[i].Scope
		}
	}
}

func swap(lines []line, at []int) []line {
	lines[at[0]], lines[at[1]] = lines[at[1]], lines[at[0]]
	return lines
}

func otherType(lines []line, at []int) []line {
	l := &lines[at[0]]
	if l.Type == "DELETED" {
		return nil
	}
	l.Type = map[string]string{"ADDED": "MODIFIED", "MODIFIED": "ADDED"}[l.Type]
	return lines
}

func otherContent(lines []line, at []int) []line {
	if lines[at[1]].Type == "DELETED" {
		return nil
	}
	lines[at[1]].Value = "other"
	return lines
}

func otherBefore(lines []line, at []int) []line {
	if lines[at[0]].Type != "DELETED" {
		return nil
	}
	lines[at[0]].Value = "other"
	return lines
}

func otherNamespace(lines []line, at []int) []line {
	if lines[at[0]].scopeOf(lines, at[0]).Namespace == "" {
		return nil
	}
	lines[at[0]].Key = "elsewhere/object"
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

// resumed drops the first event of a watch that continues behind an earlier one.
func resumed(lines []line, _ *trial, rng *rand.Rand) []line {
	return some(func(lines []line, s stretch) (at [][]int) {
		if s.resumed && len(s.live) > 1 && len(s.relist) == 0 && !isBookmark(lines, s.live[0]) &&
			!isBookmark(lines, s.live[1]) {
			at = append(at, s.live[:1])
		}
		return at
	}, func(lines []line, at []int) []line { return slices.Delete(lines, at[0], at[0]+1) })(lines, nil, rng)
}

// torn mutates initial events: the places that do gets end with their bookmark.
func torn(do func(lines []line, at []int, one *trial) []line) func([]line, *trial, *rand.Rand) []line {
	return func(lines []line, one *trial, rng *rand.Rand) []line {
		return some(func(lines []line, s stretch) (at [][]int) {
			if n := len(s.initial); n > 2 && lines[s.initial[n-1]].Initial {
				at = append(at, s.initial)
			}
			return at
		}, func(lines []line, at []int) []line { return do(lines, at, one) })(lines, one, rng)
	}
}

// relisted drops one of a list's differences.
func relisted(lines []line, _ *trial, rng *rand.Rand) []line {
	return some(func(lines []line, s stretch) (at [][]int) {
		for _, i := range s.relist {
			if lines[i].More && !isBookmark(lines, i) {
				at = append(at, []int{i})
			}
		}
		return at
	}, func(lines []line, at []int) []line { return slices.Delete(lines, at[0], at[0]+1) })(lines, nil, rng)
}

// reads returns the places of consistent gets or lists.
func reads(lines []line, gets bool) (at []int) {
	for i, l := range lines {
		if l.Kind == "read" && l.Asked == "" && (l.Scope.Name != "") == gets {
			at = append(at, i)
		}
	}
	return at
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

// staleList makes a list as of the last revision before those that the client could know of.
func staleList(lines []line, one *trial, rng *rand.Rand) []line {
	lines, at := slices.Clone(lines), reads(lines, false)
	i := at[rng.IntN(len(at))]
	lines[i] = as(lines[i], one, one.history.known(lines[i].At)-1)
	return lines
}

// otherList makes a list at 0 show an older state than that of its resourceVersion.
func otherList(lines []line, one *trial, rng *rand.Rand) []line {
	lines = slices.Clone(lines)
	for _, i := range rng.Perm(len(lines)) {
		l := lines[i]
		if l.Kind != "read" || l.Asked != "0" || l.Scope.Name != "" {
			continue
		}
		for _, o := range l.Objects {
			lines[i] = as(l, one, o.RV-1)
			lines[i].RV = l.RV
			return lines
		}
	}
	return nil
}

// futureList makes a list as of the first revision that was certainly committed later.
func futureList(lines []line, one *trial, rng *rand.Rand) []line {
	lines, at := slices.Clone(lines), reads(lines, false)
	for _, k := range rng.Perm(len(at)) {
		l := lines[at[k]]
		for _, r := range one.history.revisions {
			if r.since >= l.Until {
				lines[at[k]] = as(l, one, r.rv)
				return lines
			}
		}
	}
	return nil
}

// staleGet makes a get show the version before one that the client could know of.
func staleGet(lines []line, one *trial, rng *rand.Rand) []line {
	lines, at := slices.Clone(lines), reads(lines, true)
	for _, k := range rng.Perm(len(at)) {
		l := lines[at[k]]
		w := one.worlds[l.Scope.selection()]
		now := w.version(l.Scope.prefix(), one.history.known(l.At))
		if old := w.version(l.Scope.prefix(), now.rv-1); old.value != "" {
			l.Objects = []shown{{strings.TrimPrefix(l.Scope.prefix(), "/"+w.resource+"/"), old.rv, old.value}}
			lines[at[k]] = l
			return lines
		}
	}
	return nil
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
				other, err := newTrial(mutated)
				if err != nil {
					t.Fatal(err)
				}
				keepWorlds(other, lines, mutated)
				findings, err := judging(t).try(other)
				if err != nil {
					t.Fatal(err)
				}
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
