package fanout_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// happens makes n changes, and tells the cache of them if told is true.
func (w *world) happens(rng *rand.Rand, n int, told bool) {
	for range n {
		w.rv += 1 + uint64(rng.IntN(2))
		random := randomThing(rng)
		o := random.at(w.rv)
		c, ev := change{rv: w.rv, before: w.things[o.key()], after: o}, framing.Event{}
		switch {
		case c.before == nil:
			o.uid = fmt.Sprint(w.rv)
			ev = event("ADDED", o)
		case rng.IntN(3) == 0:
			c.after = nil
			ev = event("DELETED", c.before.at(w.rv))
		default:
			o.uid = c.before.uid
			ev = event("MODIFIED", o)
		}
		w.commit(c)
		if told {
			apply(w.t, w.cache, ev)
		}
	}
}

// store is a client's copy of the collection, as JSON by key.
type store map[string]string

// between returns what a store becomes by the changes after a resourceVersion, up to another, which
// kube-apiserver would send.
func (w *world) between(known store, s selector, after, upTo uint64) store {
	known = maps.Clone(known)
	for _, c := range w.history {
		if l := c.line(s); c.rv > after && c.rv <= upTo && l != "" {
			known.take(l)
		}
	}
	return known
}

// at returns what a client with selector s holds that knows everything up to a resourceVersion.
func (w *world) at(s selector, rv uint64) store { return w.between(store{}, s, 0, rv) }

// clientEvent is an event as a client reads it.
type clientEvent struct {
	Type   string
	Object struct {
		Metadata struct {
			Name, Namespace, UID string
			ResourceVersion      uint64 `json:"resourceVersion,string"`
		}
	}
}

func read(line string) (e clientEvent) {
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		panic(err)
	}
	return e
}

func (e clientEvent) key() string { return e.Object.Metadata.Namespace + "/" + e.Object.Metadata.Name }

// take does what an informer does with an event.
func (s store) take(line string) {
	switch e := read(line); e.Type {
	case "ADDED", "MODIFIED":
		_, s[e.key()], _ = strings.Cut(line, `"object":`)
	case "DELETED":
		delete(s, e.key())
	}
}

// follower is a client that already knew the state as of a resourceVersion when it came.
type follower struct {
	selector selector
	start    fanout.Start
	proof    fanout.Proof
	known    store
	rv       uint64

	sub  *fanout.Subscription
	sink *recorder
}

// follow begins a subscription, unless it is refused because it would begin in a relist gap.
func (w *world) follow(f *follower) (ok bool) {
	w.t.Helper()
	var err error
	f.sub, err = w.cache.Subscribe(fanout.Request{
		Filter: f.selector.filter(w.t), Start: f.start, ResourceVersion: f.rv, Proof: f.proof, Bookmarks: true,
		Timeout: time.Hour,
	})
	if errors.Is(err, fanout.ErrRelistGap) {
		return false
	}
	if err != nil {
		w.t.Fatalf("%v: %v", f, err)
	}
	f.sink = newRecorder()
	w.flusher.Start(f.sub, f.sink)
	return true
}

// end ends the subscription after everything has been sent, and returns what was sent.
func (f *follower) end(t testing.TB) []string {
	f.sub.End(fanout.Ending{Reason: fanout.ShutDown, Graceful: true})
	steady.Receive(t, "end", f.sink.endc)
	lines := f.sink.lines(t)
	if f.start == fanout.FromSnapshot { // its initial events don't matter here, and a relist may end it before them
		lines = lines[min(len(f.known), len(lines)):]
	}
	return lines
}

func (f *follower) String() string {
	return fmt.Sprintf("%v, start %d at %d, %+v", f.selector, f.start, f.rv, f.proof)
}

// check compares what a client was sent with the truth. If the stream was not cut off, the client
// has everything, in order. And wherever the stream is cut off, resuming from the last
// resourceVersion that was seen provides everything that is missing.
func (f *follower) check(t testing.TB, w *world, whole bool, lines []string, resume func(known store, rv uint64)) {
	want := w.at(f.selector, w.rv)
	known, rv := maps.Clone(f.known), f.rv
	cut := func() {
		if got := w.between(known, f.selector, rv, w.rv); !maps.Equal(got, want) {
			t.Errorf("%v: cut off at %d, and goes on elsewhere: holds\n%v, want\n%v, after\n%s",
				f, rv, got, want, lines)
		}
		if resume != nil {
			resume(known, rv)
		}
	}
	cut()
	for _, l := range lines {
		e := read(l)
		at := e.Object.Metadata.ResourceVersion
		before, had := known[e.key()]
		switch {
		case at < rv:
			t.Errorf("%v: %d behind %d: %s", f, at, rv, l)
		case whole && e.Type != "BOOKMARK" && had != (e.Type != "ADDED"):
			t.Errorf("%v: had the object: %t, and got %s", f, had, l)
		case e.Type == "MODIFIED" && had && read(`{"object":`+before).Object.Metadata.UID != e.Object.Metadata.UID:
			t.Errorf("%v: %s was another object, %s", f, l, before)
		}
		known.take(l)
		rv = at
		cut()
	}
	if whole && !maps.Equal(known, want) {
		t.Errorf("%v: holds\n%v, want\n%v, after\n%s", f, known, want, lines)
	}
}

// Wherever a client is cut off among the differences of a relist, it ends up with the true state if
// it resumes here, or at kube-apiserver, which knows nothing of that relist.
func TestRelistCut(t *testing.T) {
	t.Parallel()
	seeds := steady.Rand(t)
	for range 60 {
		seed := seeds.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			relistAndCut(t, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func relistAndCut(t *testing.T, rng *rand.Rand) {
	w := newWorld(t, roomy)
	w.happens(rng, 5+rng.IntN(10), true)
	before := w.rv
	w.rv += uint64(rng.IntN(6)) // changes of other collections, which a proof may be about
	var clients []*follower
	for i := range 24 {
		f := &follower{selector: randomSelector(t, rng), start: fanout.Start(i % 3), rv: before}
		if i%6 == 0 {
			f.selector = everything(t)
		}
		if i < 12 && f.start != fanout.FromVersion {
			f.rv += rng.Uint64N(w.rv - before + 1)
			f.proof = fanout.Proof{Epoch: w.cache.Epoch(), At: before, AsOf: f.rv}
		}
		f.known = w.at(f.selector, f.rv)
		clients = append(clients, f)
		w.follow(f)
	}
	w.happens(rng, rng.IntN(2)*rng.IntN(12), false)
	w.rv += uint64(rng.IntN(3))
	for range 12 { // clients that have seen changes elsewhere that are still to come here
		f := &follower{selector: randomSelector(t, rng), start: fanout.FromVersion,
			rv: before + rng.Uint64N(w.rv-before+3)}
		f.known = w.at(f.selector, f.rv)
		clients = append(clients, f)
		w.follow(f)
	}
	if _, err := w.cache.Replace(objects(w.things), w.rv, time.Now()); err != nil {
		t.Fatal(err)
	}
	w.rv += 3
	w.cache.Advance(w.rv)
	w.happens(rng, rng.IntN(5), true)
	for _, f := range clients {
		lines := f.end(t)
		f.check(t, w, f.sink.reason != fanout.Expired, lines, func(known store, rv uint64) {
			again := &follower{selector: f.selector, start: fanout.FromVersion, rv: rv, known: known}
			if w.follow(again) {
				again.check(t, w, false, again.end(t), nil)
			}
		})
		if f.start != fanout.FromVersion && f.sink.reason == fanout.Expired {
			t.Errorf("%v: ended", f)
		}
	}
}

// If a client leaves during a relist, neither its last event nor a bookmark after it promises more
// than the client has been sent.
func TestRelistEndings(t *testing.T) {
	const count = 6
	within := 0
	for n := 1; ; n++ {
		w := newWorld(t, roomy)
		for i := range count {
			w.rv++
			o := named(fmt.Sprint(i), "l", "1")
			o.rv, o.uid = w.rv, fmt.Sprint(w.rv)
			w.commit(change{rv: w.rv, after: &o})
			apply(t, w.cache, event("ADDED", &o))
		}
		before := w.rv
		for i := range count { // one third is deleted, one third leaves the selector, one third stays; the last first
			w.rv++
			i = count - 1 - i
			was := w.things[fmt.Sprint("a/", i)]
			c := change{rv: w.rv, before: was}
			if i%3 < 2 {
				c.after = was.at(w.rv)
				c.after.labels = map[string]string{"l": fmt.Sprint(i % 3)}
			}
			w.commit(c)
		}
		clients := []*follower{{selector: everything(t)}, {selector: sel(t, "", "l=1", "")}} // each in its own shard
		for _, f := range clients {
			f.start, f.rv, f.known = fanout.FromVersion, before, w.at(f.selector, before)
			w.follow(f)
		}
		left := n
		w.cache.OnAsk(func(*fanout.Filter) {
			if left--; left != 0 {
				return
			}
			within++
			for _, f := range clients {
				f.sub.End(fanout.Ending{Reason: fanout.ShutDown, Graceful: true})
			}
			// They take what there is, and can't end yet.
			time.Sleep(20 * time.Millisecond) //testlint:allow timer the differences come out right if they take nothing, too
		})
		if _, err := w.cache.Replace(objects(w.things), w.rv, time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, f := range clients {
			f.check(t, w, false, f.end(t), nil)
		}
		if left > 0 {
			break
		}
	}
	if within < count {
		t.Errorf("%d looks: this test measures nothing", within)
	}
}

// Objects may have come and gone unseen between the last event and a list. A client that has seen
// any of that elsewhere can't resume here.
func TestReplaceRelistGap(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x")) // 101
	ahead := make(map[uint64]*recorder)
	for _, rv := range []uint64{101, 102, 104, 105, 106, 108} {
		_, ahead[rv] = w.client(everything(t), resume(rv))
	}
	unstarted := w.subscribe(everything(t), resume(103))
	w.relist(func(things map[string]*thing, rv uint64) uint64 {
		y := named("y")
		things["a/y"] = y.at(103)
		delete(things, "a/x")
		return 105
	})
	late := newRecorder()
	w.flusher.Start(unstarted, late)
	late.wantEnd(t, fanout.Expired, true)
	w.put(named("z")) // 106
	for rv, r := range ahead {
		if rv == 102 || rv == 104 {
			r.wantEnd(t, fanout.Expired, true)
			continue
		}
		r.wantLines(t, w.since(everything(t), rv)...)
		if r.ended() {
			t.Errorf("the client that was ahead at %d was ended: %s", rv, r.reason)
		}
	}
}

// However often a collection is listed that does not change, its relist gaps take bounded memory. The
// history then begins behind the oldest of them.
func TestRelistGapsBound(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x")) // 101
	const lists = 3 * fanout.MostGaps
	for range lists {
		w.relist(func(_ map[string]*thing, rv uint64) uint64 { return rv + 2 })
	}
	w.put(named("x"))
	oldest := w.rv - 1 - 2*fanout.MostGaps
	if s := w.cache.Stats(); s.Oldest != oldest || s.HistoryEvents != 1 {
		t.Errorf("the history has %d changes, and begins behind %d, want 1 behind %d", s.HistoryEvents, s.Oldest, oldest)
	}
	for rv, want := range map[uint64]error{
		100: fanout.ErrExpired, oldest - 1: fanout.ErrExpired, oldest: nil, oldest + 1: fanout.ErrRelistGap, oldest + 2: nil,
	} {
		w.begins(everything(t), resume(rv), want)
		if want == nil {
			_, r := w.client(everything(t), resume(rv))
			r.wantLines(t, w.since(everything(t), rv)...)
		}
	}
	if !w.cache.Extend([]framing.Event{event("ADDED", w.history[0].after)}, 100, oldest) {
		t.Error("the history is not extended")
	}
}

// A history that begins among a relist's differences is not extended, because the changes that the
// relist skipped would be missing.
func TestReplaceExtend(t *testing.T) {
	limits := roomy
	limits.HistoryEvents = 2
	w := newWorld(t, limits)
	for _, name := range []string{"x", "y", "z"} {
		w.put(named(name))
	}
	for _, list := range []uint64{5, 1} { // the second has no gap
		before := w.rv
		w.relist(func(things map[string]*thing, rv uint64) uint64 {
			clear(things)
			return rv + list
		})
		oldest := w.cache.Stats().Oldest
		if oldest != before+1 {
			t.Fatalf("the history begins behind %d, want %d: this test measures nothing", oldest, before+1)
		}
		if w.cache.Extend(nil, 100, oldest) {
			t.Errorf("the history of a list as of %d goes back to 100", w.rv)
		}
		for _, name := range []string{"x", "y", "z"} {
			w.put(named(name))
		}
	}
}

func TestReplaceBackwards(t *testing.T) {
	w := newWorld(t, roomy)
	rv := w.put(named("x"))
	_, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	f := func(list uint64, objects ...thing) {
		t.Helper()
		var scanned []*framing.Object
		for _, o := range objects {
			scanned = append(scanned, object(&o))
		}
		before := w.cache.Stats()
		n, err := w.cache.Replace(scanned, list, time.Now())
		if !errors.Is(err, fanout.ErrBackwards) || n != 0 || w.cache.Stats() != before {
			t.Errorf("list of %d: %d differences, %v, want %v", list, n, err, fanout.ErrBackwards)
		}
	}
	x, y := named("x"), named("y")
	f(rv-1, *x.at(rv))
	f(rv+5, *x.at(rv - 1))            // an older version than we know
	f(rv+5, *x.at(rv), *y.at(rv))     // a change that we should know
	f(rv+5, *x.at(rv), *y.at(rv + 6)) // from after the list
	w.put(named("z"))
	z := named("z")
	r.wantLines(t, line("ADDED", z.at(w.rv)))
}

// A list with an object in other bytes at a known resourceVersion changes nothing by itself. Reset
// makes the new bytes visible: in snapshots, to new clients, and compressed. A list with the same
// bytes is a normal relist.
func TestReplaceReencoded(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x"))
	rv := w.put(named("y"))
	_, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	namedX, namedY := named("x"), named("y")
	x, y := namedX.at(rv-1), namedY.at(rv)
	if n, err := w.cache.Replace([]*framing.Object{object(x), object(y)}, rv+1, time.Now()); n != 0 || err != nil {
		t.Fatalf("the same bytes: %d differences, %v", n, err)
	}
	before := w.cache.Stats()
	x.data = "another default"
	objects := []*framing.Object{object(x), object(y)}
	if n, err := w.cache.Replace(objects, rv+2, time.Now()); !errors.Is(err, fanout.ErrReencoded) || n != 0 ||
		w.cache.Stats() != before {
		t.Fatalf("other bytes: %d differences, %v, want %v", n, err, fanout.ErrReencoded)
	}
	w.cache.Reset(objects, rv+2, fanout.Ending{Reason: fanout.Reencoded})
	if got, _ := w.cache.Snapshot().Get(x.key()); !strings.Contains(string(got.Bytes()), x.data) {
		t.Errorf("the snapshot has %s", got.Bytes())
	}
	r.wantLines(t)
	_, joined := w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot})
	joined.wantLines(t, line("ADDED", x), line("ADDED", y))
}
