package fanout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// everything selects everything.
func everything(t testing.TB) selector { return sel(t, "", "", "") }

// named returns a thing in namespace a.
func named(name string, labels ...string) thing {
	o := thing{namespace: "a", name: name}
	for i := 0; i < len(labels); i += 2 {
		if o.labels == nil {
			o.labels = make(map[string]string)
		}
		o.labels[labels[i]] = labels[i+1]
	}
	return o
}

// state returns the JSON of all objects of a snapshot, in order.
func state(s fanout.Snapshot) []string {
	var all []string
	s.All(func(o *framing.Object) bool {
		all = append(all, string(o.Bytes()))
		return true
	})
	return all
}

// A change that is not newer changes nothing and reaches nobody.
func TestApplyBackwards(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x"))
	rv := w.put(named("y"))
	_, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	f := func(typ string, o thing, at uint64, want error) {
		t.Helper()
		before, stats := state(w.cache.Snapshot()), w.cache.Stats()
		err := w.cache.Apply(event(typ, o.at(at)), time.Now())
		if !errors.Is(err, want) {
			t.Errorf("%s %s at %d: error %v, want %v", typ, o.key(), at, err, want)
		}
		if want != nil && (!slices.Equal(state(w.cache.Snapshot()), before) || w.cache.Stats() != stats) {
			t.Errorf("%s %s at %d changed the cache", typ, o.key(), at)
		}
	}
	f("MODIFIED", named("y"), rv, fanout.ErrBackwards) // repeated
	f("MODIFIED", named("x"), rv, fanout.ErrBackwards)
	f("MODIFIED", named("x"), rv-1, fanout.ErrBackwards)
	f("DELETED", named("x"), rv, fanout.ErrBackwards) // shares a revision, but not with a deletion
	w.cache.Advance(rv + 10)
	f("MODIFIED", named("x"), rv+10, fanout.ErrBackwards)
	f("MODIFIED", named("x"), rv+9, fanout.ErrBackwards)

	// One etcd revision may delete several objects: the expiry of a lease does.
	f("DELETED", named("x"), rv+11, nil)
	f("DELETED", named("x"), rv+11, fanout.ErrBackwards) // repeated
	f("ADDED", named("z"), rv+11, fanout.ErrBackwards)
	f("DELETED", named("y"), rv+11, nil)
	f("DELETED", named("unknown"), rv+12, nil)
	if got := w.cache.Progress(); got != rv+12 {
		t.Errorf("progress %d, want %d", got, rv+12)
	}
	x, y := named("x"), named("y")
	r.wantLines(t, line("DELETED", x.at(rv+11)), line("DELETED", y.at(rv+11)))
}

// The event type depends on whether the cache held the object, and not on what upstream calls the
// change.
func TestApplyTypes(t *testing.T) {
	w := newWorld(t, roomy)
	_, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	x := named("x")
	for i, typ := range []string{"MODIFIED", "ADDED"} {
		if err := w.cache.Apply(event(typ, x.at(uint64(101+i))), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	r.wantLines(t, line("ADDED", x.at(101)), line("MODIFIED", x.at(102)))
}

// A relist sends exactly the differences, in an order that lets a client resume anywhere.
func TestReplace(t *testing.T) {
	w := newWorld(t, roomy)
	for _, name := range []string{"gone1", "same", "changed1", "gone2", "changed2"} {
		w.put(named(name, "l", "1"))
	}
	before := w.rv
	_, all := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	_, some := w.client(sel(t, "", "l=1", ""), fanout.Request{Start: fanout.FromNow})
	epoch := w.cache.Epoch()
	w.relist(func(things map[string]*thing, rv uint64) uint64 {
		changed1, changed2, added := named("changed1", "l", "1"), named("changed2"), named("added", "l", "1")
		things["a/changed2"] = changed2.at(rv + 3)
		things["a/added"] = added.at(rv + 5)
		things["a/changed1"] = changed1.at(rv + 7)
		delete(things, "a/gone2")
		delete(things, "a/gone1")
		return rv + 9
	})
	if w.cache.Epoch() != epoch+1 || w.cache.Progress() != before+9 {
		t.Errorf("epoch %d, progress %d, want %d, %d", w.cache.Epoch(), w.cache.Progress(), epoch+1, before+9)
	}
	changed1, changed2, added := named("changed1", "l", "1"), named("changed2"), named("added", "l", "1")
	gone1, gone2, was2 := named("gone1", "l", "1"), named("gone2", "l", "1"), named("changed2", "l", "1")
	all.wantLines(t,
		line("DELETED", gone1.at(before)),
		line("DELETED", gone2.at(before)),
		line("MODIFIED", changed2.at(before+3)),
		line("ADDED", added.at(before+5)),
		line("MODIFIED", changed1.at(before+7)))
	some.wantLines(t,
		line("DELETED", was2.at(before)), // left the selector
		line("DELETED", gone1.at(before)),
		line("DELETED", gone2.at(before)),
		line("ADDED", added.at(before+5)),
		line("MODIFIED", changed1.at(before+7)))
	// A client that resumes finds the same in the history.
	_, late := w.client(sel(t, "", "l=1", ""), fanout.Request{Start: fanout.FromVersion, ResourceVersion: before})
	late.wantLines(t, some.lines(t)...)
	// The same list again makes no difference.
	w.relist(func(_ map[string]*thing, rv uint64) uint64 { return rv })
	w.relist(func(_ map[string]*thing, rv uint64) uint64 { return rv + 1 })
	w.put(named("end"))
	end := named("end")
	all.wantLines(t, append(w.since(everything(t), before)[:5], line("ADDED", end.at(w.rv)))...)
}

// If an object was deleted and created again, no client sees one turn into the other.
func TestReplaceAnotherUID(t *testing.T) {
	w := newWorld(t, roomy)
	born := func(name, uid string, labels ...string) *thing {
		o := named(name, labels...)
		o.uid = uid
		return &o
	}
	w.put(*born("again", "1", "l", "1"))
	w.put(*born("kept", "2", "l", "1"))
	w.put(*born("other", "3"))
	before := w.rv
	_, all := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	_, some := w.client(sel(t, "", "l=1", ""), fanout.Request{Start: fanout.FromNow})
	w.relist(func(things map[string]*thing, rv uint64) uint64 {
		things["a/other"] = born("other", "3").at(rv + 3)
		things["a/kept"] = born("kept", "2", "l", "1").at(rv + 4)
		things["a/again"] = born("again", "4").at(rv + 5)
		return rv + 5
	})
	all.wantLines(t,
		line("DELETED", born("again", "1", "l", "1").at(before)),
		line("MODIFIED", born("other", "3").at(before+3)),
		line("MODIFIED", born("kept", "2", "l", "1").at(before+4)),
		line("ADDED", born("again", "4").at(before+5)))
	some.wantLines(t,
		line("DELETED", born("again", "1", "l", "1").at(before)),
		line("MODIFIED", born("kept", "2", "l", "1").at(before+4)))
	// A client that has seen anything of a relist gap may have seen more. Resuming from before the
	// gap is possible.
	_, err := w.cache.Subscribe(fanout.Request{Filter: everything(t).filter(t), Start: fanout.FromVersion, ResourceVersion: before + 4, Timeout: time.Hour})
	if !errors.Is(err, fanout.ErrRelistGap) {
		t.Errorf("resumed within a relist gap: %v", err)
	}
	_, late := w.client(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: before})
	late.wantLines(t, all.lines(t)...)
	if s, ok := w.cache.SnapshotAt(before); !ok || s.Len() != 3 {
		t.Errorf("the state before: %d objects, %v", s.Len(), ok)
	}
	if s := w.cache.Stats(); s.Objects != 3 {
		t.Errorf("%d objects", s.Objects)
	}
}

// Objects may have come and gone unseen between the last event and a list. A client that has seen
// any of that elsewhere can't resume here.
func TestReplaceRelistGap(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x")) // 101
	ahead := make(map[uint64]*recorder)
	for _, rv := range []uint64{101, 102, 104, 105, 106, 108} {
		_, ahead[rv] = w.client(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: rv})
	}
	unstarted := w.subscribe(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: 103})
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
	for rv := uint64(100); rv <= 106; rv++ {
		sub, err := w.cache.Subscribe(fanout.Request{Filter: everything(t).filter(t), Start: fanout.FromVersion, ResourceVersion: rv, Timeout: time.Hour})
		if gap := rv > 101 && rv < 105; errors.Is(err, fanout.ErrExpired) != gap {
			t.Errorf("from %d: %v", rv, err)
		}
		if err == nil {
			r := newRecorder()
			w.flusher.Start(sub, r)
			r.wantLines(t, w.since(everything(t), rv)...)
		}
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
	if n, err := w.cache.Replace(objects, rv+2, time.Now()); !errors.Is(err, fanout.ErrReencoded) || n != 0 || w.cache.Stats() != before {
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

// An event is encoded once, even if a list brought it.
func TestReplaceSharesFrames(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x", "l", "1"))
	var sinks []*addresses
	for _, ls := range []string{"", "l", "l=1", "l!=2"} {
		a := &addresses{}
		w.flusher.Start(w.subscribe(sel(t, "", ls, ""), fanout.Request{Start: fanout.FromNow}), a)
		sinks = append(sinks, a)
	}
	w.relist(func(things map[string]*thing, rv uint64) uint64 {
		x := named("x", "l", "1")
		things["a/x"] = x.at(rv + 1)
		return rv + 1
	})
	want := sinks[0].wait(t)
	for _, a := range sinks[1:] {
		if a.wait(t) != want {
			t.Error("two groups have a copy each")
		}
	}
}

// addresses is a sink that remembers where its first bytes are.
type addresses struct {
	mu    sync.Mutex
	first *byte
}

func (a *addresses) Write(batch [][]byte) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first == nil {
		a.first = &batch[0][0]
	}
	return false, nil
}
func (a *addresses) Drain(func(error))       {}
func (a *addresses) End(fanout.Reason, bool) {}
func (a *addresses) wait(t testing.TB) *byte {
	for range 5000 {
		a.mu.Lock()
		first := a.first
		a.mu.Unlock()
		if first != nil {
			return first
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("nothing was written")
	return nil
}

// When upstream has gone back in time, every client's stream ends, and a new history begins.
func TestReset(t *testing.T) {
	w := newWorld(t, roomy)
	rv := w.put(named("x"))
	sub, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow, Bookmarks: true})
	posted := w.subscribe(everything(t), fanout.Request{Start: fanout.FromNow})
	const status = `{"kind":"Status","code":410}`
	y := named("y")
	w.cache.Reset([]*framing.Object{object(y.at(50))}, 60, fanout.Ending{Reason: fanout.Backwards, Last: framing.ErrorFrame(framing.JSON, []byte(status))})
	r.wantEnd(t, fanout.Backwards, true)
	r.wantLines(t, `{"type":"ERROR","object":`+status+"}\n")
	sub.End(fanout.Ending{Reason: fanout.Gone}) // too late

	// A client that had subscribed, but was not served yet, also gets an end.
	late := newRecorder()
	w.flusher.Start(posted, late)
	late.wantEnd(t, fanout.Backwards, true)
	late.wantLines(t, `{"type":"ERROR","object":`+status+"}\n")

	if got := w.cache.Progress(); got != 60 {
		t.Errorf("progress %d, want 60", got)
	}
	if _, err := w.cache.Subscribe(fanout.Request{Filter: everything(t).filter(t), Start: fanout.FromVersion, ResourceVersion: 59}); !errors.Is(err, fanout.ErrExpired) {
		t.Errorf("from before the reset: %v, want %v", err, fanout.ErrExpired)
	}
	_, again := w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot})
	if err := w.cache.Apply(event("ADDED", (&thing{name: "z"}).at(61)), time.Now()); err != nil {
		t.Fatal(err)
	}
	again.wantLines(t, line("ADDED", y.at(50)), line("ADDED", (&thing{name: "z"}).at(61)))
	// A resourceVersion in the future of the new history, even if it was in the past of the old
	// one, gets nothing until then.
	_, future := w.client(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: rv})
	if err := w.cache.Apply(event("ADDED", (&thing{name: "z2"}).at(rv)), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := w.cache.Apply(event("ADDED", (&thing{name: "z3"}).at(rv+1)), time.Now()); err != nil {
		t.Fatal(err)
	}
	future.wantLines(t, line("ADDED", (&thing{name: "z3"}).at(rv+1)))
}

func TestClose(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x"))
	_, r := w.client(everything(t), fanout.Request{Start: fanout.FromNow})
	posted := w.subscribe(sel(t, "a", "", ""), fanout.Request{Start: fanout.FromSnapshot})
	waiting := make(chan error)
	go func() { waiting <- w.cache.WaitFor(context.Background(), 1e9) }()
	w.cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
	w.cache.Close(fanout.Ending{Reason: fanout.ShutDown}) // too late
	r.wantEnd(t, fanout.LaneClosed, true)
	late := newRecorder()
	w.flusher.Start(posted, late)
	late.wantEnd(t, fanout.LaneClosed, true)
	if err := <-waiting; err != fanout.ErrClosed {
		t.Errorf("WaitFor: %v, want %v", err, fanout.ErrClosed)
	}
	if _, err := w.cache.Subscribe(fanout.Request{Filter: everything(t).filter(t)}); err != fanout.ErrClosed {
		t.Errorf("Subscribe: %v, want %v", err, fanout.ErrClosed)
	}
	select {
	case <-w.cache.Changed():
	default:
		t.Error("Changed of a closed cache blocks")
	}
	if s := w.cache.Stats(); s.Subscriptions != 0 || s.Groups != 0 {
		t.Errorf("left over: %+v", s)
	}
}

// "Nothing can be read from it before the first Replace": earlier subscribers would never get its
// objects.
func TestSubscribeBeforeFilled(t *testing.T) {
	c := fanout.NewCache(roomy, fanout.NewFlusher(1, 0))
	for _, start := range []fanout.Start{fanout.FromNow, fanout.FromSnapshot, fanout.FromVersion} {
		_, err := c.Subscribe(fanout.Request{Filter: everything(t).filter(t), Start: start, ResourceVersion: 5, Timeout: time.Hour})
		if err != fanout.ErrNotFresh {
			t.Errorf("start %d: %v, want %v", start, err, fanout.ErrNotFresh)
		}
	}
	if n := c.Snapshot().Len(); n != 0 || c.Progress() != 0 {
		t.Errorf("%d objects at %d", n, c.Progress())
	}
}

// The three ways to begin, from one history.
func TestSubscribeStarts(t *testing.T) {
	w := newWorld(t, roomy)
	from := w.put(named("x", "l", "1"))
	w.put(named("y", "l", "1"))
	w.put(named("x"))
	w.put(named("z", "l", "1"))
	w.advance(3)
	for _, s := range []selector{everything(t), sel(t, "", "l=1", ""), sel(t, "b", "", ""), sel(t, "a", "", "metadata.name=x")} {
		now := w.rv
		want := map[fanout.Start][]string{
			fanout.FromNow:      nil,
			fanout.FromSnapshot: append(w.initial(s, now), bookmark(now, true)),
			fanout.FromVersion:  w.since(s, from),
		}
		recs := make(map[fanout.Start]*recorder)
		for start := range want {
			_, recs[start] = w.client(s, fanout.Request{Start: start, ResourceVersion: from, Bookmarks: true, EndBookmark: true})
		}
		_, plain := w.client(s, fanout.Request{Start: fanout.FromSnapshot, EndBookmark: true}) // but no Bookmarks
		w.put(named("x", "l", "1"))
		w.put(named("x"))
		for start, r := range recs {
			r.wantLines(t, append(want[start], w.since(s, now)...)...)
		}
		plain.wantLines(t, append(w.initial(s, now), w.since(s, now)...)...)
	}
}

// A watch from a resourceVersion in the future is accepted. It gets nothing up to and including
// that resourceVersion, neither events nor bookmarks, as with kube-apiserver.
func TestSubscribeFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		_, r := w.client(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: 103, Bookmarks: true})
		w.put(named("x")) // 101
		w.put(named("y"))
		w.put(named("x"))                                // 103
		time.Sleep(2*time.Minute + 350*time.Millisecond) // between two sweeps that may send a bookmark
		r.wantLines(t)
		y := named("y")
		w.put(y)
		time.Sleep(fanout.SweepEvery)
		r.wantLines(t, line("MODIFIED", y.at(104)))
		time.Sleep(time.Minute + 2*time.Second)
		w.advance(1)
		time.Sleep(time.Minute)
		r.wantLines(t, line("MODIFIED", y.at(104)), bookmark(104, false), bookmark(104, false), bookmark(105, false))
	})
}

func TestSubscribeExpired(t *testing.T) {
	limits := roomy
	limits.HistoryEvents = 3
	w := newWorld(t, limits)
	f := func(rv uint64, want error) {
		t.Helper()
		sub, err := w.cache.Subscribe(fanout.Request{Filter: everything(t).filter(t), Start: fanout.FromVersion, ResourceVersion: rv, Timeout: time.Hour})
		if !errors.Is(err, want) {
			t.Errorf("from %d: %v, want %v", rv, err, want)
		}
		if err == nil {
			sub.Cancel()
		}
	}
	f(99, fanout.ErrExpired)
	f(100, nil)
	for range 3 {
		w.put(named("x"))
	}
	f(100, nil)
	w.put(named("x")) // 101 is forgotten
	f(100, fanout.ErrExpired)
	f(101, nil)
	if s := w.cache.Stats(); s.Subscriptions != 0 || s.Groups != 0 || s.Oldest != 101 || s.HistoryEvents != 3 {
		t.Errorf("stats %+v", s)
	}
}

// A proof holds for the state that it is about, and for states that the cache has passed.
func TestProof(t *testing.T) {
	w := newWorld(t, roomy) // at 100
	epoch := w.cache.Epoch()
	f := func(p fanout.Proof, want error) {
		t.Helper()
		for _, start := range []fanout.Start{fanout.FromNow, fanout.FromSnapshot} {
			sub, err := w.cache.Subscribe(fanout.Request{Filter: everything(t).filter(t), Start: start, Proof: p, Timeout: time.Hour})
			if !errors.Is(err, want) {
				t.Errorf("%+v at %d: %v, want %v", p, w.cache.Progress(), err, want)
			}
			if err == nil {
				sub.Cancel()
			}
		}
	}
	f(fanout.Proof{}, nil)
	f(fanout.Proof{Epoch: epoch, At: 100, AsOf: 110}, nil)
	f(fanout.Proof{Epoch: epoch - 1, At: 100, AsOf: 110}, fanout.ErrNotFresh) // from before a relist
	f(fanout.Proof{Epoch: epoch, At: 99, AsOf: 110}, fanout.ErrNotFresh)
	w.put(named("x"))
	f(fanout.Proof{Epoch: epoch, At: 100, AsOf: 110}, fanout.ErrNotFresh) // 101 may be one of two that undo each other
	f(fanout.Proof{Epoch: epoch, At: 101, AsOf: 110}, nil)
	w.advance(9)
	f(fanout.Proof{Epoch: epoch, At: 100, AsOf: 110}, nil) // passed
	f(fanout.Proof{Epoch: epoch, At: 100, AsOf: 111}, fanout.ErrNotFresh)
}

// Changes up to a proof's resourceVersion are in the state that was sent: each has been undone by
// then.
func TestProofSkips(t *testing.T) {
	w := newWorld(t, roomy)
	kept := w.put(named("kept"))
	p := fanout.Proof{Epoch: w.cache.Epoch(), At: kept, AsOf: kept + 2}
	_, now := w.client(everything(t), fanout.Request{Start: fanout.FromNow, Proof: p})
	_, snapshot := w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot, Proof: p, Bookmarks: true, EndBookmark: true})
	w.put(named("undone"))
	w.del("a/undone")
	w.put(named("new"))
	want := w.since(everything(t), kept+2)
	now.wantLines(t, want...)
	snapshot.wantLines(t, append(append(w.initial(everything(t), kept), bookmark(kept+2, true)), want...)...)
}

// Changes from before the history can be fetched for a client that resumes from there.
func TestExtend(t *testing.T) {
	w := newWorld(t, roomy)
	x, y := named("x", "l", "1"), named("y", "l", "1")
	// A lane that was filled at 110, with older objects.
	w.cache.Reset([]*framing.Object{object(y.at(90)), object(x.at(107))}, 110, fanout.Ending{Reason: fanout.Backwards})
	w.rv, w.things, w.history = 110, map[string]*thing{"a/x": x.at(107), "a/y": y.at(90)}, nil
	w.put(named("x"))
	request := func(s selector, rv uint64) fanout.Request {
		return fanout.Request{Filter: s.filter(t), Start: fanout.FromVersion, ResourceVersion: rv, Timeout: time.Hour}
	}
	fails := func(s selector, rv uint64, want error) {
		t.Helper()
		if _, err := w.cache.Subscribe(request(s, rv)); !errors.Is(err, want) {
			t.Errorf("from %d, %v: %v, want %v", rv, s, err, want)
		}
	}
	fails(everything(t), 105, fanout.ErrExpired)
	if w.cache.Extend(nil, 105, 109) || w.cache.Extend(nil, 110, 110) {
		t.Error("extended with a gap, or backwards")
	}
	// From 105 on. The replay does not know the version of x as of 105, only what its changes made
	// of it.
	x2 := named("x", "l", "1", "m", "")
	z := named("z", "l", "1")
	replayed := []framing.Event{event("MODIFIED", x2.at(106)), event("MODIFIED", x.at(107)), event("ADDED", z.at(108)), event("DELETED", z.at(109))}
	if !w.cache.Extend(replayed, 105, 110) {
		t.Fatal("not extended")
	}
	if s := w.cache.Stats(); s.Oldest != 105 || s.HistoryEvents != 5 {
		t.Errorf("stats %+v", s)
	}
	fails(everything(t), 104, fanout.ErrExpired)
	fails(sel(t, "", "m", ""), 105, fanout.ErrPreviousUnknown)
	fails(sel(t, "", "", "spec.node=n1"), 105, fanout.ErrPreviousUnknown)

	rest := w.since(everything(t), 110)
	_, all := w.client(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: 105})
	all.wantLines(t, append([]string{
		line("MODIFIED", x2.at(106)), line("MODIFIED", x.at(107)), line("ADDED", z.at(108)), line("DELETED", z.at(109)),
	}, rest...)...)
	_, one := w.client(sel(t, "", "", "metadata.name=z"), fanout.Request{Start: fanout.FromVersion, ResourceVersion: 105})
	one.wantLines(t, line("ADDED", z.at(108)), line("DELETED", z.at(109)))
	_, decidable := w.client(sel(t, "", "m", ""), fanout.Request{Start: fanout.FromVersion, ResourceVersion: 106})
	decidable.wantLines(t, line("DELETED", x2.at(107)))
	_, middle := w.client(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: 108})
	middle.wantLines(t, append([]string{line("DELETED", z.at(109))}, rest...)...)

	// Further back, before the extension.
	if !w.cache.Extend([]framing.Event{event("ADDED", x.at(103))}, 101, 105) {
		t.Fatal("not extended further")
	}
	_, further := w.client(everything(t), fanout.Request{Start: fanout.FromVersion, ResourceVersion: 101})
	further.wantLines(t, append([]string{line("ADDED", x.at(103))}, all.lines(t)...)...)
	// Now the version before x's first change is known too.
	if keys, _ := w.cache.UnresolvedKeys(); len(keys) > 0 {
		t.Errorf("unknown are %q", keys)
	}
	for _, from := range []uint64{101, 105} {
		_, settled := w.client(sel(t, "", "m", ""), fanout.Request{Start: fanout.FromVersion, ResourceVersion: from})
		settled.wantLines(t, line("ADDED", x2.at(106)), line("DELETED", x2.at(107)))
	}
}

// Once the versions from before the history are known, the history decides what clients with
// selectors get.
func TestDecide(t *testing.T) {
	f := func(before thing, want string) {
		t.Helper()
		w := newWorld(t, roomy)
		with, without, y := named("x", "m", ""), named("x"), named("y", "m", "")
		w.cache.Reset([]*framing.Object{object(without.at(108))}, 110, fanout.Ending{Reason: fanout.Backwards})
		replayed := []framing.Event{event("MODIFIED", with.at(106)), event("MODIFIED", without.at(107)), event("DELETED", without.at(108)), event("DELETED", y.at(109))}
		if !w.cache.Extend(replayed, 105, 110) {
			t.Fatal("not extended")
		}
		from := func(rv uint64) fanout.Request {
			return fanout.Request{Filter: sel(t, "", "m", "").filter(t), Start: fanout.FromVersion, ResourceVersion: rv, Timeout: time.Hour}
		}
		if _, err := w.cache.Subscribe(from(105)); !errors.Is(err, fanout.ErrPreviousUnknown) {
			t.Errorf("before it is decided: %v", err)
		}
		if keys, after := w.cache.UnresolvedKeys(); len(keys) != 1 || keys[0] != "a/x" || after != 105 {
			t.Errorf("unknown are %q, behind %d", keys, after)
		}
		if w.cache.ResolvePrevious(nil, 105) || w.cache.ResolvePrevious([]*framing.Object{object(before.at(100))}, 104) {
			t.Error("decided by nothing, or by another resourceVersion's versions")
		}
		if !w.cache.ResolvePrevious([]*framing.Object{object(before.at(100))}, 105) {
			t.Error("not decided")
		}
		if keys, _ := w.cache.UnresolvedKeys(); len(keys) != 0 {
			t.Errorf("unknown are %q", keys)
		}
		_, r := w.client(sel(t, "", "m", ""), from(105))
		r.wantLines(t, line(want, with.at(106)), line("DELETED", with.at(107)), line("DELETED", y.at(109)))
	}
	f(named("x", "m", ""), "MODIFIED")
	f(named("x"), "ADDED")
}

// However often it is extended, the history keeps its bounds, and drops the fetched changes first.
func TestExtendBounds(t *testing.T) {
	limits := roomy
	limits.HistoryEvents, limits.HistoryBytes = 10, 20_000
	w := newWorld(t, limits)
	w.rv = 1_000_000
	w.cache.Advance(w.rv)
	events := func(after uint64, n int, data int) (evs []framing.Event) {
		for i := range n {
			o := thing{namespace: "a", name: fmt.Sprint("r", i), data: strings.Repeat("d", data)}
			evs = append(evs, event("ADDED", o.at(after+1+uint64(i))))
		}
		return evs
	}
	if w.cache.Extend(events(50, 11, 0), 50, 100) {
		t.Error("extended by more events than fit")
	}
	if w.cache.Extend(events(50, 5, 4000), 50, 100) {
		t.Error("extended by more bytes than fit")
	}
	if !w.cache.Extend(events(50, 5, 1800), 50, 100) || w.cache.Extend(events(20, 6, 0), 20, 50) {
		t.Error("extended twice by more events than fit, or not once")
	}
	if w.cache.Extend(events(20, 5, 2400), 20, 50) {
		t.Error("extended twice by more bytes than fit")
	}
	s := w.cache.Stats()
	if s.HistoryEvents != 5 || s.Oldest != 50 || s.HistoryBytes > limits.HistoryBytes || s.HistoryBytes < 5*1800 {
		t.Errorf("stats %+v", s)
	}
	for i := range 11 {
		w.put(named(fmt.Sprint(i)))
	}
	if s := w.cache.Stats(); s.HistoryEvents != 10 || s.Oldest != 1_000_001 {
		t.Errorf("stats %+v, want the replayed events to be gone", s)
	}
	if events, ok := w.cache.HistorySince(1_000_001); !ok || len(events) != 10 {
		t.Errorf("%d events, %v", len(events), ok)
	}
}

// A snapshot never changes.
func TestSnapshotIsolation(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, roomy)
	type held struct {
		snapshot fanout.Snapshot
		want     []string
	}
	var snapshots []held
	for range 1000 {
		o := randomThing(rng)
		o.name = fmt.Sprint(rng.IntN(300))
		switch {
		case rng.IntN(3) > 0 || w.things[o.key()] == nil:
			w.put(o)
		default:
			w.del(o.key())
		}
		if rng.IntN(20) == 0 {
			s := w.cache.Snapshot()
			if s.ResourceVersion != w.rv || s.Len() != len(w.things) {
				t.Fatalf("snapshot of %d with %d objects, want %d with %d", s.ResourceVersion, s.Len(), w.rv, len(w.things))
			}
			var want []string
			for _, o := range w.stateAt(w.rv) {
				want = append(want, o.json())
			}
			snapshots = append(snapshots, held{s, want})
		}
	}
	for _, h := range snapshots {
		diff(t, state(h.snapshot), h.want)
	}
	if again := w.cache.Snapshot(); again.Len() != len(w.things) {
		t.Errorf("%d objects, want %d", again.Len(), len(w.things))
	}
}

// Ascend goes in key order, from the given key, and stops when asked to.
func TestSnapshotAscend(t *testing.T) {
	w := newWorld(t, roomy)
	for _, ns := range []string{"a", "a-b", "a.b", "b", "aa"} {
		for _, name := range []string{"x", "y", "z"} {
			w.put(thing{namespace: ns, name: name})
		}
	}
	s := w.cache.Snapshot()
	f := func(namespace, fs, after string, most int, want ...string) {
		t.Helper()
		var got []string
		s.Ascend(sel(t, namespace, "", fs).filter(t), after, func(o *framing.Object) bool {
			got = append(got, o.Key)
			return len(got) < most
		})
		if !slices.Equal(got, want) {
			t.Errorf("%q, %q behind %q: %q, want %q", namespace, fs, after, got, want)
		}
	}
	// Keys are compared as a whole, as in etcd: namespace a-b comes before a.
	f("", "", "", 99, "a-b/x", "a-b/y", "a-b/z", "a.b/x", "a.b/y", "a.b/z", "a/x", "a/y", "a/z", "aa/x", "aa/y", "aa/z", "b/x", "b/y", "b/z")
	f("", "", "aa/x", 2, "aa/y", "aa/z")
	f("", "", "aa/deleted-since", 2, "aa/x", "aa/y")
	f("", "", "b/z", 99)
	f("a", "", "", 99, "a/x", "a/y", "a/z")
	f("a", "", "a-b/z", 99, "a/x", "a/y", "a/z")
	f("a", "", "a/x", 1, "a/y")
	f("a", "", "a/z", 99)
	f("none", "", "", 99)
	f("a", "metadata.name=y", "", 99, "a/y")
	f("a", "metadata.name=y", "a/x", 99, "a/y")
	f("a", "metadata.name=y", "a/y", 99)
	f("a", "metadata.name=w", "", 99)
	f("", "metadata.name=y", "a/x", 2, "a/y", "aa/y")
	f("", "metadata.name=", "", 99)
	f("", "metadata.name=y,metadata.namespace=b", "", 99, "b/y")

	cluster := newWorld(t, roomy)
	for _, name := range []string{"x", "y", "z"} {
		cluster.put(thing{name: name})
	}
	s = cluster.cache.Snapshot()
	f("", "", "x", 99, "y", "z")
	f("", "metadata.name=y", "", 99, "y")
	f("", "metadata.name=y", "y", 99)
	f("", "metadata.name=w", "", 99)
	f("", "metadata.name!=y", "", 99, "x", "z")
	f("", "metadata.namespace=a", "", 99)
	f("a", "metadata.name=y", "", 99)

	if o, ok := s.Get("y"); !ok || o.Name != "y" {
		t.Errorf("Get: %v, %v", o, ok)
	}
	if _, ok := s.Get("w"); ok {
		t.Error("Get found what is not there")
	}
}

// Finding an object by name in cluster scope is one look-up. Each kubelet does that for its Node.
func TestSnapshotByNameIsCheap(t *testing.T) {
	w := newWorld(t, roomy)
	var objects []*framing.Object
	for i := range 3000 {
		objects = append(objects, object(&thing{name: fmt.Sprint("node-", i), rv: uint64(101 + i)}))
	}
	if _, err := w.cache.Replace(objects, 10_000, time.Now()); err != nil {
		t.Fatal(err)
	}
	s := w.cache.Snapshot()
	took := func(fs string, want int) time.Duration {
		f, found := sel(t, "", "", fs).filter(t), 0
		start := time.Now()
		for range 100 {
			s.Ascend(f, "", func(*framing.Object) bool { found++; return true })
		}
		if found != 100*want {
			t.Errorf("%s: found %d, want %d", fs, found, 100*want)
		}
		return time.Since(start)
	}
	scan := took("spec.node=none", 0)
	for _, name := range []string{"node-7", "none"} {
		if d := took("metadata.name="+name, len(name)/6); d > scan/5 {
			t.Errorf("100 look-ups of %s took %v, as many scans %v", name, d, scan)
		}
	}
}

func TestWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, roomy)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too late"))
		defer cancel()
		if err := w.cache.WaitFor(ctx, 100); err != nil {
			t.Error(err)
		}
		done := make(chan uint64)
		for _, rv := range []uint64{101, 102, 104} {
			go func() {
				if err := w.cache.WaitFor(ctx, rv); err != nil {
					t.Error(err)
				}
				done <- rv
			}()
		}
		still := func() {
			t.Helper()
			synctest.Wait()
			select {
			case rv := <-done:
				t.Errorf("progress %d, but %d is said to be reached", w.cache.Progress(), rv)
			default:
			}
		}
		still()
		w.put(named("x"))
		if rv := <-done; rv != 101 {
			t.Errorf("reached %d first", rv)
		}
		still()
		w.advance(2) // to 103
		if rv := <-done; rv != 102 {
			t.Errorf("reached %d second", rv)
		}
		still()
		w.relist(func(_ map[string]*thing, rv uint64) uint64 { return rv + 9 })
		<-done
		if err := w.cache.WaitFor(ctx, 1e6); err == nil || err.Error() != "too late" {
			t.Errorf("got %v", err)
		}
		closed := make(chan error)
		go func() { closed <- w.cache.WaitFor(t.Context(), 1e6) }()
		synctest.Wait()
		w.cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
		if err := <-closed; err != fanout.ErrClosed {
			t.Errorf("got %v, want %v", err, fanout.ErrClosed)
		}
	})
}

func TestAdvance(t *testing.T) {
	w := newWorld(t, roomy)
	epoch := w.cache.Epoch()
	w.cache.Advance(99)
	if got := w.cache.Progress(); got != 100 {
		t.Errorf("progress %d, want 100", got)
	}
	f := func(epoch, at, rv uint64, ok bool, progress uint64) {
		t.Helper()
		if got := w.cache.AdvanceFrom(epoch, at, rv); got != ok || w.cache.Progress() != progress {
			t.Errorf("AdvanceFrom(%d, %d, %d) = %v at %d, want %v at %d", epoch, at, rv, got, w.cache.Progress(), ok, progress)
		}
	}
	f(epoch, 101, 105, false, 100)
	f(epoch, 100, 105, true, 105)
	f(epoch, 100, 104, true, 105) // it has moved on meanwhile
	f(epoch-1, 100, 110, false, 105)
	w.rv = 105
	w.relist(func(_ map[string]*thing, rv uint64) uint64 { return rv + 1 })
	f(epoch, 105, 110, false, 106)
	f(epoch+1, 106, 110, true, 110)
}

func TestStats(t *testing.T) {
	w := newWorld(t, roomy)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		o := randomThing(rng)
		if rng.IntN(4) == 0 && w.things[o.key()] != nil {
			w.del(o.key())
			continue
		}
		w.put(o)
	}
	w.relist(func(things map[string]*thing, rv uint64) uint64 {
		n := uint64(0)
		for key, o := range things {
			if n++; n%2 == 0 {
				delete(things, key)
			} else {
				things[key] = o.at(rv + n)
			}
		}
		return rv + n
	})
	a := w.subscribe(sel(t, "a", "", ""), fanout.Request{})
	b := w.subscribe(sel(t, "a", "", ""), fanout.Request{})
	c := w.subscribe(sel(t, "b", "", ""), fanout.Request{})
	var bytes int64
	w.cache.Snapshot().All(func(o *framing.Object) bool { bytes += int64(o.Size()); return true })
	events, _ := w.cache.HistorySince(100)
	want := fanout.Stats{
		ResourceVersion: w.rv, Objects: len(w.things), Bytes: bytes, HistoryEvents: len(w.history), HistoryBytes: 0,
		Oldest: 100, Groups: 2, Subscriptions: 3,
	}
	for _, e := range events {
		want.HistoryBytes += int64(e.Object.Size())
	}
	if got := w.cache.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for i, s := range []*fanout.Subscription{a, b, c} {
		if got, want := w.cache.Indexed(), []int{2, 2, 1}[i]; got != want {
			t.Errorf("%d groups are matched with events, want %d", got, want)
		}
		s.Cancel()
	}
	if got := w.cache.Stats(); got.Groups != 0 || got.Subscriptions != 0 || w.cache.Indexed() != 0 {
		t.Errorf("got %+v and %d groups in the index after all have left", got, w.cache.Indexed())
	}
}

// A bookmark form is not replaced by one with less, but is replaced by a newer server's form.
func TestSetBookmarkForm(t *testing.T) {
	form := func(l string) framing.BookmarkForm {
		ev, err := framing.NewScanner(framing.JSON, nil).Event([]byte(l))
		if err != nil {
			t.Fatal(err)
		}
		return ev.Form
	}
	f := fanout.NewFlusher(1, 0)
	run(t, f)
	c := fanout.NewCache(roomy, f)
	if _, err := c.Replace(nil, 100, time.Now()); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cache: c, flusher: f}
	got := func() []string {
		_, r := w.client(everything(t), fanout.Request{Start: fanout.FromSnapshot, Bookmarks: true, EndBookmark: true})
		time.Sleep(20 * time.Millisecond)
		return r.lines(t)
	}
	if c.HasBookmarks() || len(got()) != 0 {
		t.Error("has bookmarks, of which it can't know the form")
	}
	c.SetBookmarkForm(form(bookmark(1, false)))
	if c.HasBookmarks() || len(got()) != 0 {
		t.Error("knows the end bookmark from a plain one")
	}
	c.SetBookmarkForm(form(bookmark(1, true)))
	c.SetBookmarkForm(form(bookmark(2, false)))
	if !c.HasBookmarks() {
		t.Error("has forgotten the end bookmark")
	}
	diff(t, got(), []string{bookmark(100, true)})
	newer := func(rv uint64) string {
		return fmt.Sprintf(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}},"new":0}}`+"\n", rv)
	}
	c.SetBookmarkForm(form(newer(3)))
	diff(t, got(), []string{newer(100)})
}

// SnapshotAt returns the state as of each resourceVersion that the history reaches back to, and
// nothing where that state is not known.
func TestSnapshotAt(t *testing.T) {
	limits := roomy
	limits.HistoryEvents = 200
	w := newWorld(t, limits)
	rnd := rand.New(rand.NewPCG(1, 2))
	check := func(rv uint64) {
		t.Helper()
		inGap := slices.ContainsFunc(w.gaps, func(g [2]uint64) bool { return g[0] < rv && rv < g[1] })
		known := rv >= w.cache.Stats().Oldest && rv <= w.cache.Progress() && !inGap
		s, ok := w.cache.SnapshotAt(rv)
		if ok != known {
			t.Errorf("at %d of %d…%d, in a gap %v: %v", rv, w.cache.Stats().Oldest, w.cache.Progress(), inGap, ok)
		}
		if !ok {
			return
		}
		var want []string
		for _, o := range w.stateAt(rv) {
			want = append(want, o.json())
		}
		if got := state(s); !slices.Equal(got, want) || s.ResourceVersion != rv {
			t.Errorf("at %d: got %d %q, want %q", rv, s.ResourceVersion, got, want)
		}
	}
	for i := range 600 {
		name := fmt.Sprintf("o%d", rnd.IntN(20))
		switch n := rnd.IntN(20); {
		case n == 0:
			w.advance(uint64(rnd.IntN(3)))
		case i%150 == 100:
			w.relist(func(things map[string]*thing, rv uint64) uint64 {
				delete(things, "a/"+name)
				o := named("relisted")
				things["a/relisted"] = o.at(rv + 2)
				return rv + 5
			})
		case n < 8 && w.things["a/"+name] != nil:
			w.del("a/" + name)
		default:
			w.put(named(name, "i", strconv.Itoa(i)))
		}
		if i%50 == 49 {
			for rv := w.rv - min(w.rv, 260); rv <= w.rv+2; rv++ {
				check(rv)
			}
			if got, want := state(w.cache.Snapshot()), w.stateAt(w.rv); len(got) != len(want) {
				t.Fatalf("looking back has changed the cache: %d objects, want %d", len(got), len(want))
			}
		}
	}
}

// A state that was proved for a later resourceVersion gets that resourceVersion, and can be
// requested by it.
func TestSnapshotProved(t *testing.T) {
	w := newWorld(t, roomy)
	at := w.put(named("x"))
	p := fanout.Proof{Epoch: w.cache.Epoch(), At: at, AsOf: at + 10}
	s, err := w.cache.SnapshotProved(p)
	if err != nil || s.ResourceVersion != at+10 || len(state(s)) != 1 {
		t.Fatalf("got %v as of %d, %v", state(s), s.ResourceVersion, err)
	}
	w.advance(10)
	w.put(named("y"))
	if s, ok := w.cache.SnapshotAt(at + 10); !ok || s.ResourceVersion != at+10 || len(state(s)) != 1 {
		t.Errorf("as of what was proved: got %v as of %d, %v", state(s), s.ResourceVersion, ok)
	}
	if _, err := w.cache.SnapshotProved(fanout.Proof{Epoch: p.Epoch, At: at, AsOf: at + 100}); !errors.Is(err, fanout.ErrNotFresh) {
		t.Errorf("a proof of another state: %v", err)
	}
	if s, err := w.cache.SnapshotProved(p); err != nil || s.ResourceVersion != w.rv || len(state(s)) != 2 {
		t.Errorf("a proof of what has been passed: got %v as of %d, %v", state(s), s.ResourceVersion, err)
	}
	w.cache.Reset(nil, w.rv, fanout.Ending{Reason: fanout.Backwards})
	if _, ok := w.cache.SnapshotAt(at + 10); ok {
		t.Error("what was proved before a reset is still served")
	}
}

// Snapshots have the same identity if they hold the same objects, whatever their resourceVersion.
func TestSnapshotIdentity(t *testing.T) {
	w := newWorld(t, roomy)
	w.put(named("x"))
	a := w.cache.Snapshot()
	w.advance(5)
	b := w.cache.Snapshot()
	w.put(named("y"))
	c := w.cache.Snapshot()
	if a.Identity() != b.Identity() || b.ResourceVersion != a.ResourceVersion+5 || a.Identity() == c.Identity() {
		t.Errorf("%v, %v, %v", a.Identity(), b.Identity(), c.Identity())
	}
}

// Initial events that a selector picks from a large collection are searched for in several turns,
// and all of them are found.
func TestSnapshotTurns(t *testing.T) {
	w := newWorld(t, roomy)
	const objects = 2*fanout.MaxSearchWork + 5000
	list := make([]*framing.Object, objects)
	var want []string
	w.rv++
	for i := range list {
		o := named(fmt.Sprintf("x%06d", i))
		if o.rv = w.rv; i == 0 || i == fanout.MaxSearchWork-1 || i == fanout.MaxSearchWork || i == objects-1 {
			o.node = "n1"
			want = append(want, line("ADDED", &o))
		}
		list[i] = object(&o)
	}
	if _, err := w.cache.Replace(list, w.rv, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, gzip := range []bool{false, true} {
		r := newRecorder()
		r.gzip = gzip
		w.flusher.Start(w.subscribe(sel(t, "", "", "spec.node=n1"), fanout.Request{Start: fanout.FromSnapshot, Timeout: time.Second, Gzip: gzip}), r)
		<-r.endc
		r.wantLines(t, want...)
	}
}
