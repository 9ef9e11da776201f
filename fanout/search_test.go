package fanout_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// indexKeys are what an index is built of, in the tests.
var indexKeys = []string{"spec.node", "l", "m", "none", "metadata.name"}

func always() bool { return true }

// newIndexedWorld returns a world whose cache has an Indexer that does not run.
func newIndexedWorld(t testing.TB, limits fanout.Limits) (*world, *fanout.Indexer) {
	x := fanout.NewIndexer()
	w := newWorldWith(t, limits, newFlusher(2), x)
	return w, x
}

// largeThing draws one of many objects in a random version.
func largeThing(rng *rand.Rand) thing {
	o := randomThing(rng)
	o.data = ""
	if rng.IntN(8) > 0 { // x0 to x4 exist in several namespaces
		o.name = fmt.Sprintf("y%03d", rng.IntN(400))
	}
	return o
}

// keysOf returns what identifies versions of objects.
func keysOf(objects []*framing.Object) (keys []string) {
	for _, o := range objects {
		keys = append(keys, fmt.Sprintf("%s@%d", o.Key, o.ResourceVersion))
	}
	return keys
}

// instant is the model of a snapshot: its things by key.
type instant []*thing

// keys returns what a search must find.
func (in instant) keys(s selector, after string) (keys []string) {
	for _, o := range in {
		if o.key() > after && s.matches(o) {
			keys = append(keys, fmt.Sprintf("%s@%d", o.key(), o.rv))
		}
	}
	return keys
}

// heldSnapshot is a snapshot, and the state that it must show for ever.
type heldSnapshot struct {
	fanout.Snapshot
	model instant
}

// check compares a search of the snapshot, by Ascend, with a search of the model.
func (h heldSnapshot) check(t *testing.T, rng *rand.Rand, s selector) {
	t.Helper()
	after, most := "", 1<<30
	if n := len(h.model); n > 0 && rng.IntN(2) == 0 {
		after = h.model[rng.IntN(n)].key()
	}
	want := h.model.keys(s, after)
	if rng.IntN(2) == 0 {
		most = 1 + rng.IntN(20)
		want = want[:min(most, len(want))]
	}
	var got []*framing.Object
	h.Ascend(s.filter(t), after, func(o *framing.Object) bool {
		got = append(got, o)
		return len(got) < most
	})
	diff(t, keysOf(got), want)
}

// turnedSearch is a search in turns that goes on while the cache changes.
type turnedSearch struct {
	*fanout.Search
	selector selector
	want     []string
	got      []string
}

// A search finds what a look at all objects finds, in the order of their keys: at each
// resourceVersion, in snapshots that are held, with any indexes, while they come and go, and in
// searches that were begun before.
func TestSearchModel(t *testing.T) {
	seeds := steady.Rand(t)
	for range 3 {
		seed := seeds.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { searchModel(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func searchModel(t *testing.T, rng *rand.Rand) {
	limits := roomy
	limits.HistoryEvents = 400
	w, indexer := newIndexedWorld(t, limits)
	for range 900 {
		w.put(largeThing(rng))
	}
	var held []heldSnapshot
	var turned []*turnedSearch
	by := make(map[string]int)
	indexes, burst, extended := 0, 300, 0
	again := everything(t) // what an index has been built of
	for range 1500 {
		w.step(rng)
		switch rng.IntN(40) {
		case 0, 1, 2:
			w.cache.BuildIndex(indexKeys[rng.IntN(len(indexKeys))], func() bool {
				if rng.IntN(3) == 0 {
					w.step(rng)
				}
				for ; burst > 0; burst-- { // once, more than are applied in one step
					w.step(rng)
				}
				return rng.IntN(100) > 0
			})
		case 3:
			indexer.BuildWanted()
			again = randomSelector(t, rng)
			w.cache.BuildIndexOf(again.filter(t))
		case 4:
			if rng.IntN(4) == 0 {
				indexer.SweepAt(time.Now().Add(2 * fanout.IndexIdleFor))
			}
		case 5:
			held = append(held, heldSnapshot{w.cache.Snapshot(), sorted(w.things)})
		case 6:
			if rng.IntN(4) == 0 {
				extended += w.extend(t, rng, indexer)
			}
		}
		if len(held) > 8 {
			held = slices.Delete(held, 0, 1)
		}
		now := heldSnapshot{w.cache.Snapshot(), sorted(w.things)}
		indexes = max(indexes, now.Indexes())
		if rng.IntN(3) == 0 {
			now.check(t, rng, randomSelector(t, rng))
		}
		if len(held) > 0 && rng.IntN(3) == 0 {
			held[rng.IntN(len(held))].check(t, rng, randomSelector(t, rng))
		}
		if rng.IntN(20) == 0 {
			w.checkAt(t, rng)
		}
		if rng.IntN(5) == 0 {
			w.checkReplay(t, rng)
		}
		if rng.IntN(4) == 0 {
			s := randomSelector(t, rng)
			if rng.IntN(2) == 0 {
				s = again
			}
			turned = append(turned, &turnedSearch{
				Search: fanout.NewSearch(now.Snapshot, s.filter(t)), selector: s, want: now.model.keys(s, ""),
			})
		}
		turned = slices.DeleteFunc(turned, func(s *turnedSearch) bool {
			if rng.IntN(3) > 0 {
				return false
			}
			found, done := s.Turn(1 + rng.IntN(200))
			s.got = append(s.got, keysOf(found)...)
			if done {
				by[s.By()]++
				diff(t, s.got, s.want)
			}
			return done
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	if by["key"] == 0 || by["index"] == 0 || by["filter"] == 0 || by["all"] == 0 || indexes == 0 || extended == 0 {
		t.Errorf("not all ways to search: %v with %d indexes, and %d changes from before the history", by, indexes, extended)
	}
}

// step makes a random change.
func (w *world) step(rng *rand.Rand) {
	o := largeThing(rng)
	switch n := rng.IntN(900); {
	case n < 3:
		w.relist(func(things map[string]*thing, rv uint64) uint64 {
			for range 20 {
				o := largeThing(rng)
				if was := things[o.key()]; was != nil && rng.IntN(2) == 0 {
					delete(things, o.key())
				} else {
					rv++
					things[o.key()] = o.at(rv)
				}
			}
			return rv + 1
		})
	case n == 3:
		w.reset()
	case n < 240 && w.things[o.key()] != nil:
		w.del(o.key())
	default:
		w.put(o)
	}
}

// reset has the cache begin anew with the same objects, and the history with it.
func (w *world) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rv++
	w.began = w.rv
	w.cache.Reset(objects(w.things), w.rv, fanout.Ending{Reason: fanout.Reencoded})
}

// extend begins anew, and has the history reach back again in two steps, unless there was a relist. It
// returns the number of changes that were fetched.
func (w *world) extend(t *testing.T, rng *rand.Rand, indexer *fanout.Indexer) (fetched int) {
	w.reset()
	for range 2 {
		until := w.oldest()
		after := max(100, until-1-rng.Uint64N(60))
		if slices.ContainsFunc(w.gaps, func(g [2]uint64) bool { return after < g[1] && g[0] < until }) {
			return fetched
		}
		events := w.upstream(after, until)
		if !w.cache.Extend(events, after, until) {
			t.Errorf("not extended from %d to %d", until, after)
		}
		fetched += len(events)
		if rng.IntN(2) == 0 {
			indexer.BuildWanted()
		}
		for range 10 {
			w.checkReplay(t, rng)
		}
	}
	known := make(map[string]*thing)
	for _, o := range w.stateAt(w.oldest()) {
		known[o.key()] = o
	}
	if !w.cache.ResolvePrevious(objects(known), w.oldest()) {
		t.Error("not all versions before are known")
	}
	return fetched
}

// upstream returns the events after one resourceVersion, up to another, as upstream has sent them.
func (w *world) upstream(after, upTo uint64) (events []framing.Event) {
	for _, c := range w.history {
		switch {
		case c.rv <= after || c.rv > upTo:
		case c.before == nil:
			events = append(events, event("ADDED", c.after))
		case c.after == nil:
			events = append(events, event("DELETED", c.before.at(c.rv)))
		default:
			events = append(events, event("MODIFIED", c.after))
		}
	}
	return events
}

// checkAt compares a search at an earlier resourceVersion with the model.
func (w *world) checkAt(t *testing.T, rng *rand.Rand) {
	rv := w.oldest() - 2 + rng.Uint64N(w.rv-w.oldest()+5)
	s, ok := w.cache.SnapshotAt(rv)
	known := w.oldest() <= rv && rv <= w.rv && !w.inGap(rv)
	if undecided := rv < w.began && !ok; ok != known && !undecided || ok && s.ResourceVersion != rv {
		t.Errorf("at %d of %d…%d: %v as of %d, want %v", rv, w.oldest(), w.rv, ok, s.ResourceVersion, known)
	}
	if !ok {
		return
	}
	s.Indexes()
	model := instant(w.stateAt(rv))
	heldSnapshot{s, model}.check(t, rng, randomSelector(t, rng))
	sel := randomSelector(t, rng)
	search := fanout.NewSearch(s, sel.filter(t))
	var got []string
	for done := false; !done; {
		var found []*framing.Object
		found, done = search.Turn(500)
		got = append(got, keysOf(found)...)
	}
	diff(t, got, model.keys(sel, ""))
}

func (w *world) oldest() uint64 { return w.cache.Stats().Oldest }

// inGap reports whether a resourceVersion is in a relist gap.
func (w *world) inGap(rv uint64) bool {
	return slices.ContainsFunc(w.gaps, func(g [2]uint64) bool { return g[0] < rv && rv < g[1] })
}

// checkReplay compares the events after an earlier resourceVersion with the model.
func (w *world) checkReplay(t *testing.T, rng *rand.Rand) {
	rv := w.oldest() + rng.Uint64N(w.rv-w.oldest()+1)
	if w.inGap(rv) {
		return
	}
	s, r := randomSelector(t, rng), resume(rv)
	r.Filter, r.Timeout = s.filter(t), time.Hour
	sub, err := w.cache.Subscribe(r)
	if errors.Is(err, fanout.ErrPreviousUnknown) && rv < w.began && !r.Filter.Fixed() {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Cancel()
	wire, _, _ := sub.Fill()
	diff(t, unchunk(t, wire), w.since(s, rv))
}

// A replay looks at the changes that may concern its filter, as far back as the index was there.
func TestReplayByIndex(t *testing.T) {
	w, indexer := newIndexedWorld(t, roomy)
	w.manyThings(1000, 10)
	move := func(n int) (from uint64) {
		from = w.rv
		for i := range n {
			o := named(fmt.Sprintf("x%06d", 2*(i%500)), "l", "1")
			o.node = fmt.Sprint("n", i%7)
			w.put(o)
		}
		return from
	}
	node := sel(t, "", "", "spec.node=n4").filter(t)
	began := move(700)
	if n := w.cache.Replay(node, began); n != 700 {
		t.Errorf("looked at %d changes", n)
	}
	w.cache.BuildIndex("spec.node", always)
	built := w.rv
	if n := w.cache.Replay(node, began); n != 700 {
		t.Errorf("looked at %d changes from before the index, want all", n)
	}
	move(700)
	concerned := len(w.since(sel(t, "", "", "spec.node=n4"), built))
	if n := w.cache.Replay(node, built); n != concerned || n < 100 || n > 200 {
		t.Errorf("looked at %d changes, want the %d that concern the filter", n, concerned)
	}
	if n := w.cache.Replay(sel(t, "", "l in (1,2)", "spec.node=n4").filter(t), built); n != concerned {
		t.Errorf("looked at %d changes, want %d", n, concerned)
	}

	// Changes from before the history are in no index.
	w.reset()
	w.cache.BuildIndex("spec.node", always)
	if !w.cache.Extend(w.upstream(built, w.rv), built, w.rv) || w.cache.Replay(node, built) != 700 {
		t.Errorf("looked at %d changes, want all that were fetched", w.cache.Replay(node, built))
	}

	// Replays alone cause an index too.
	before := w.cache.Stats().Indexes
	name := sel(t, "", "", "metadata.name=x000004")
	for range 3 {
		sub := w.subscribe(name, resume(built))
		sub.Fill()
		sub.Cancel()
	}
	indexer.BuildWanted()
	if got := w.cache.Stats().Indexes; got != before+1 {
		t.Errorf("%d indexes, want %d", got, before+1)
	}
}

// Indexes are built, used and given up while changes come and clients join. Run with -race.
func TestIndexStress(t *testing.T) {
	w, indexer := newIndexedWorld(t, roomy)
	rng := steady.Rand(t)
	for range 600 {
		w.put(largeThing(rng))
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	loop := func(seed uint64, f func(rng *rand.Rand)) {
		others.Go(func() {
			for rng := rand.New(rand.NewPCG(seed, seed)); ; {
				select {
				case <-stop:
					return
				default:
					f(rng)
				}
			}
		})
	}
	loop(1, func(rng *rand.Rand) {
		w.cache.BuildIndex(indexKeys[rng.IntN(len(indexKeys))], always)
		if rng.IntN(5) == 0 {
			indexer.SweepAt(time.Now().Add(2 * fanout.IndexIdleFor))
		}
	})
	for i := range uint64(2) {
		loop(2+i, func(rng *rand.Rand) {
			s := randomSelector(t, rng)
			w.mu.Lock()
			want := sorted(w.things)
			sub := w.subscribe(s, fanout.Request{Start: fanout.FromSnapshot})
			snapshot := w.cache.Snapshot()
			w.mu.Unlock()
			r := newRecorder()
			w.flusher.Start(sub, r)
			heldSnapshot{snapshot, want}.check(t, rng, s)
			snapshot.Indexes()
			var lines []string
			for _, o := range want {
				if s.matches(o) {
					lines = append(lines, line("ADDED", o))
				}
			}
			for len(r.lines(t)) < len(lines) {
				runtime.Gosched()
			}
			diff(t, r.lines(t)[:len(lines)], lines)
			sub.End(fanout.Ending{Reason: fanout.Gone})
			<-r.endc
		})
	}
	for range 1000 {
		switch o := largeThing(rng); {
		case rng.IntN(4) == 0 && w.things[o.key()] != nil:
			w.del(o.key())
		default:
			w.put(o)
		}
		runtime.Gosched()
	}
	close(stop)
	others.Wait()
}

// manyThings has a world list n things in namespaces a and b: x000000, … on nodes n0, n1, …, each
// with a label l of its own, and one in a hundred with a label rare.
func (w *world) manyThings(n, nodes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rv++
	objects := make([]*framing.Object, n)
	for i := range objects {
		o := named(fmt.Sprintf("x%06d", i), "l", fmt.Sprint(i))
		if i%2 == 1 {
			o.namespace = "b"
		}
		if i%100 == 0 {
			o.labels["rare"] = fmt.Sprint(i % 300)
		}
		o.node, o.rv = fmt.Sprint("n", i%nodes), w.rv
		objects[i] = object(&o)
	}
	if _, err := w.cache.Replace(objects, w.rv, time.Now()); err != nil {
		w.t.Fatal(err)
	}
}

// looked returns how many objects a search looks at, and how many it finds.
func looked(s fanout.Snapshot, f *fanout.Filter) (looked, found int) {
	s.Visit(f, "", func(_ *framing.Object, selected bool) bool {
		looked++
		if selected {
			found++
		}
		return true
	})
	return looked, found
}

// Searches that look at many objects in vain cause an index, and then look at what they find. Of
// several indexes a search uses the one with the fewest objects.
func TestIndexDemand(t *testing.T) {
	w, indexer := newIndexedWorld(t, roomy)
	const n, nodes = 3000, 30
	w.manyThings(n, nodes)
	f := func(namespace, ls, fs string, wantLooked, wantFound int) {
		t.Helper()
		if l, found := looked(w.cache.Snapshot(), sel(t, namespace, ls, fs).filter(t)); l != wantLooked || found != wantFound {
			t.Errorf("%q %q %q: looked at %d to find %d, want %d and %d", namespace, ls, fs, l, found, wantLooked, wantFound)
		}
	}
	for range fanout.WastedFor {
		f("", "", "spec.node=n4", n, n/nodes)
		indexer.BuildWanted()
		if got := w.cache.Stats().Indexes; got != 0 {
			t.Fatalf("%d indexes, want none after so few searches", got)
		}
	}
	f("", "", "spec.node=n4", n, n/nodes)
	indexer.BuildWanted()
	f("", "", "spec.node=n4", n/nodes, n/nodes)
	f("a", "", "spec.node=n4", n/nodes, n/nodes)
	f("b", "", "spec.node=n4", 0, 0)
	f("", "", "spec.node=nowhere", 0, 0)
	f("", "", "spec.node=n4,spec.on=true", n/nodes, 0)
	if got := w.cache.Stats(); got.Indexes != 1 || got.IndexBytes != n*fanout.EntryBytes {
		t.Errorf("%d indexes with %d bytes", got.Indexes, got.IndexBytes)
	}

	w.cache.BuildIndex("l", always)
	f("", "l=4", "spec.node=n4", 1, 1)
	f("", "l in (4,34,7)", "", 3, 3)
	f("", "l in (4,34,7)", "spec.node=n4", 3, 2)
	f("a", "l in (4,34,7)", "", 2, 2)
	f("", "l=none", "", 0, 0)
	f("", "rare", "spec.node=n0", n/nodes, 10)

	// A search that finds most of what it looks at needs no index.
	f("", "", "spec.on=false", n, n)
	f("", "", "spec.on=false", n, n)
	f("", "", "spec.on=false", n, n)
	indexer.BuildWanted()
	if got := w.cache.Stats().Indexes; got != 2 {
		t.Errorf("%d indexes, want 2", got)
	}
}

// A subscription that began before an index was built uses it from its next turn on, or from its first.
// TestSearchModel compares what it finds.
func TestSearchUsesLaterIndex(t *testing.T) {
	w, _ := newIndexedWorld(t, roomy)
	w.manyThings(3000, 30)
	node := sel(t, "", "", "spec.node=n4").filter(t)
	begun, waiting := fanout.NewSearch(w.cache.Snapshot(), node), fanout.NewSearch(w.cache.Snapshot(), node)
	before, _ := begun.Turn(100)
	late := named("zzz")
	late.node = "n4"
	w.put(late)
	w.cache.BuildIndex("spec.node", always)
	for s, want := range map[*fanout.Search]int{begun: 100 - len(before), waiting: 100} {
		if found, done := s.Turn(101); !done || s.By() != "index" || len(found) != want {
			t.Errorf("the search goes over %s, and has found %d, want %d", s.By(), len(found), want)
		}
	}
}

// An index is given up when no search has used it for a while, when memory is short, and when the
// cache ends or begins anew. Snapshots that have it keep it.
func TestIndexGivenUp(t *testing.T) {
	w, indexer := newIndexedWorld(t, roomy)
	w.manyThings(1000, 10)
	node := sel(t, "", "", "spec.node=n4").filter(t)
	have := func(want int) {
		t.Helper()
		if got := w.cache.Snapshot().Indexes(); got != want || w.cache.Stats().Indexes != want {
			t.Errorf("%d indexes, %d in a snapshot, want %d", w.cache.Stats().Indexes, got, want)
		}
	}
	build := func() fanout.Snapshot {
		t.Helper()
		w.cache.BuildIndex("spec.node", always)
		have(1)
		return w.cache.Snapshot()
	}
	held := build()
	later := time.Now().Add(fanout.IndexIdleFor - time.Second)
	indexer.SweepAt(later)
	have(1)
	indexer.SweepAt(later.Add(2 * time.Second))
	have(0)
	w.put(named("x000004"))
	if l, found := looked(held, node); l != 100 || found != 100 {
		t.Errorf("the held snapshot looks at %d to find %d", l, found)
	}

	held = build()
	indexer.Shed()
	have(0)
	for range 5 {
		looked(w.cache.Snapshot(), node)
	}
	indexer.BuildWanted()
	have(0) // memory was short just now
	if l, _ := looked(held, node); l != 99 {
		t.Errorf("the held snapshot looks at %d", l)
	}

	build()
	w.reset()
	have(0)
	if got, _ := w.cache.Demand(); got != 1 {
		t.Errorf("after a reset %d indexes are wanted, want the one that was there", got)
	}
	w.manyThings(1000, 10)
	build()
	w.cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
	have(0)
	w.cache.BuildIndex("spec.node", always)
	have(0)
}

// An index is given up if the history forgets changes while it is built.
func TestIndexBuildOverrun(t *testing.T) {
	limits := roomy
	limits.HistoryEvents = 1000
	w, _ := newIndexedWorld(t, limits)
	w.manyThings(1000, 10)
	template := event("MODIFIED", (&thing{namespace: "a", name: "x000000"}).at(1))
	changes := limits.HistoryEvents + 1
	w.cache.BuildIndex("spec.node", func() bool {
		for ; changes > 0; changes-- {
			w.rv++
			apply(t, w.cache, again(template, w.rv))
		}
		return true
	})
	if got := w.cache.Stats().Indexes; got != 0 {
		t.Errorf("%d indexes", got)
	}
	w.cache.BuildIndex("spec.node", always)
	if got := w.cache.Snapshot().Indexes(); got != 1 {
		t.Errorf("%d indexes, want 1", got)
	}
}

// A cache keeps a bounded number of indexes, those that are in use, and knows the demand of a
// bounded number of labels.
func TestIndexBounds(t *testing.T) { synctest.Test(t, testIndexBounds) }

func testIndexBounds(t *testing.T) {
	w, _ := newIndexedWorld(t, roomy)
	w.manyThings(1000, 10)
	for i := range fanout.MaxIndexes + 2 {
		w.cache.BuildIndex(fmt.Sprint("label", i), always)
	}
	if got := w.cache.Stats().Indexes; got != fanout.MaxIndexes || !w.cache.Snapshot().HasIndex("label0") {
		t.Errorf("%d indexes", got)
	}
	time.Sleep(fanout.KeepIndexFor)
	looked(w.cache.Snapshot(), sel(t, "", "label0=1", "").filter(t))
	for i := range fanout.MaxIndexes + 2 {
		w.cache.BuildIndex(fmt.Sprint("later", i), always)
	}
	s := w.cache.Snapshot()
	if s.Indexes() != fanout.MaxIndexes || !s.HasIndex("label0") || s.HasIndex("label1") || !s.HasIndex("later14") || s.HasIndex("later15") {
		t.Errorf("%d indexes, not those that are used and the new ones", s.Indexes())
	}
	for i := range 1000 {
		looked(s, sel(t, "", fmt.Sprintf("other%d=1", i), "").filter(t))
	}
	if _, got := w.cache.Demand(); got == 0 || got > 256 {
		t.Errorf("the demand of %d labels is known", got)
	}
}

// An index takes less than 100 bytes for an object, whether its values are many or few. With the
// changes in the history it takes as much as the metric says.
func TestIndexMemory(t *testing.T) {
	const n = 40_000
	w, _ := newIndexedWorld(t, roomy)
	w.manyThings(n, 20)
	check := func(when string, taken, said int64) {
		t.Helper()
		if taken < said/2 || taken > said*3/2 {
			t.Errorf("%s: indexes take %d bytes, the metric says %d", when, taken, said)
		}
	}
	before := heap()
	w.cache.BuildIndex("spec.node", always)
	w.cache.BuildIndex("l", always)
	taken := heap() - before
	check("after they were built", taken, w.cache.Stats().IndexBytes)
	if each := taken / n / 2; each > 100 {
		t.Errorf("%d bytes for an object and index", each)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range n {
		o := named(fmt.Sprintf("x%06d", rng.IntN(n/2)*2), "l", fmt.Sprint(rng.IntN(n/20)))
		o.node = fmt.Sprintf("other-%05d", rng.IntN(n/20))
		w.rv++
		apply(t, w.cache, event("MODIFIED", o.at(w.rv)))
	}
	before = heap()
	said := w.cache.Stats().IndexBytes
	w.cache.DropIndexes()
	check("with changes", before-heap(), said)
	runtime.KeepAlive(w)
}

// Clients that ask for the same find it by an index of what their filter selects, if that is little, and
// none of a label or field serves them. TestSearchModel compares what they find.
func TestFilterIndex(t *testing.T) {
	w, indexer := newIndexedWorld(t, roomy)
	const n = 20_000
	w.manyThings(n, 30)
	want := func(s fanout.Snapshot, f *fanout.Filter, want int) {
		t.Helper()
		l, found := looked(s, f)
		if want == 0 {
			want = found
		}
		if l != want || found == 0 {
			t.Errorf("looked at %d to find %d, want %d", l, found, want)
		}
	}
	first, rare := w.cache.Snapshot(), sel(t, "", "rare,rare!=0", "").filter(t)
	begun := fanout.NewSearch(first, rare)
	before, _ := begun.Turn(1000)
	for range fanout.WastedFor {
		indexer.BuildWanted()
		want(first, rare, n)
	}
	indexer.BuildWanted()
	if rest, done := begun.Turn(n); !done || begun.By() != "filter" || len(before)+len(rest) != n/100*2/3 {
		t.Errorf("by %s, done %t, found %d", begun.By(), done, len(rest))
	}
	w.put(named("x000100"))
	w.put(named("y", "rare", "7"))
	want(w.cache.Snapshot(), sel(t, "", "rare,rare!=0", "").filter(t), 0)
	w.del("a/y")
	want(w.cache.Snapshot(), rare, 0)

	// Another namespace has another filter, and what selects most of the objects is searched for each time.
	for _, f := range []*fanout.Filter{sel(t, "a", "rare,rare!=0", "").filter(t), sel(t, "", "", "spec.node!=n4").filter(t)} {
		l, _ := looked(w.cache.Snapshot(), f)
		want(w.cache.Snapshot(), f, l)
		if indexer.BuildWanted(); w.cache.Stats().Indexes != 1 {
			t.Fatalf("%d indexes", w.cache.Stats().Indexes)
		}
	}
	for range 2 * fanout.WastedFor {
		looked(w.cache.Snapshot(), sel(t, "", "", "spec.node!=n4").filter(t))
	}
	if indexer.BuildWanted(); w.cache.Stats().Indexes != 1 {
		t.Errorf("%d indexes", w.cache.Stats().Indexes)
	}
}
