package fanout_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// viewed is what a view has of things, and its twin.
type viewed struct {
	variant *fanout.Variant
	has     func(o *thing) bool
}

// views are a quiet one, one that selects by a field, and quiet ones that select by the labels of
// namespaces too.
func views() []viewed {
	onField := func(o *framing.Object) bool { return o.Fields[1] == "true" }
	on := func(o *thing) bool { return o.on }
	all := func(*thing) bool { return true }
	team, _ := labels.Parse("team=a")
	return []viewed{
		{&fanout.Variant{Trim: dataless.With(nil, true)}, all},
		{&fanout.Variant{Trim: dataless.With(onField, false)}, on},
		{&fanout.Variant{Trim: dataless.With(onField, true)}, on},
		{&fanout.Variant{Trim: dataless.With(nil, true), Namespaces: team}, all},
		{&fanout.Variant{Trim: dataless.With(onField, true), Namespaces: team}, on},
	}
}

// spaces are the labels of namespaces, and when they were given.
type spaces struct {
	rv     uint64
	labels map[string]labels.Set
}

// viewWorld is what happens upstream, which replicas follow at their own pace.
type viewWorld struct {
	*world
	spaces []spaces
}

// replica is a cache that has followed upstream up to a resourceVersion.
type replica struct {
	w      *viewWorld
	at     uint64
	spaces int // that it knows of
	cache  *fanout.Cache
}

var ended = fanout.Ending{Reason: fanout.Expired}

// restart begins a cache at the replica's resourceVersion.
func (r *replica) restart() {
	if r.cache != nil {
		r.cache.Close(fanout.Ending{Reason: fanout.ShutDown})
	}
	r.cache = fanout.NewCache(roomy, r.w.flusher)
	form, _ := framing.NewScanner(framing.JSON, nil).Event([]byte(bookmark(1, true)))
	r.cache.SetBookmarkForm(form.Form)
	r.tell(r.w.spaces[r.spaces], true)
	r.list()
}

// tell tells the cache of namespaces. first says that it knew none.
func (r *replica) tell(s spaces, first bool) {
	since := s.rv // of the latest that was relabelled
	r.cache.SetNamespaces(&fanout.NamespaceLabels{ByName: s.labels, Since: since, Gap: first}, ended)
}

func (r *replica) list() {
	state := make(map[string]*thing)
	for _, o := range r.w.stateAt(r.at) {
		state[o.key()] = o
	}
	if _, err := r.cache.Replace(objects(state), r.at, time.Now()); err != nil {
		r.w.t.Fatal(err)
	}
}

// follow brings up to n changes, in their order with those of namespaces.
func (r *replica) follow(n int) {
	for range n {
		var next *change
		for i := range r.w.history {
			if r.w.history[i].rv > r.at {
				next = &r.w.history[i]
				break
			}
		}
		if s := r.spaces + 1; s < len(r.w.spaces) && (next == nil || r.w.spaces[s].rv < next.rv) {
			r.spaces = s
			r.tell(r.w.spaces[s], false)
			continue
		}
		if next == nil {
			return
		}
		r.at = next.rv
		switch {
		case next.after == nil:
			apply(r.w.t, r.cache, event("DELETED", next.before.at(next.rv)))
		case next.before == nil:
			apply(r.w.t, r.cache, event("ADDED", next.after))
		default:
			apply(r.w.t, r.cache, event("MODIFIED", next.after))
		}
	}
}

// skip is a relist of all that has happened.
func (r *replica) skip() {
	if r.spaces = len(r.w.spaces) - 1; r.spaces >= 0 {
		r.tell(r.w.spaces[r.spaces], true)
	}
	r.at = r.w.rv
	r.list()
}

// viewer is an informer in a view.
type viewer struct {
	viewed
	selector selector
	gzip     bool
	replica  *replica
	known    store
	rv       uint64
	sub      *fanout.Subscription
	sink     *recorder
	read     int

	cut       uint64 // upstream's resourceVersion when it was last cut off, perhaps amid the removals of a relist
	beginning bool   // initial events are still to come
}

func (v *viewer) filter(t testing.TB) *fanout.Filter {
	return v.selector.filter(t).In(v.variant.Trim, v.replica.cache.Namespaces(v.variant.Namespaces))
}

// begin resumes at a replica, or lists there: what has been skipped, or is too old, is refused.
func (v *viewer) begin(w *viewWorld, r *replica, initial bool) {
	v.replica = r
	want := fanout.Request{Filter: v.filter(w.t), Variant: v.variant, Start: fanout.FromVersion, ResourceVersion: v.rv,
		Timeout: 1000 * time.Hour, Bookmarks: true, EndBookmark: true, Gzip: v.gzip}
	if v.rv == 0 && initial {
		v.known, v.beginning, want.Start = store{}, true, fanout.FromSnapshot
	} else if v.rv == 0 {
		v.list()
		want.ResourceVersion = v.rv
	}
	sub, err := r.cache.Subscribe(want)
	if errors.Is(err, fanout.ErrExpired) && !errors.Is(err, fanout.ErrRelistGap) {
		w.extend(r, v.rv)
		sub, err = r.cache.Subscribe(want)
	}
	if errors.Is(err, fanout.ErrPreviousUnknown) {
		_, after := r.cache.UnresolvedKeys()
		var before []*framing.Object
		for _, o := range w.stateAt(after) {
			before = append(before, object(o))
		}
		r.cache.ResolvePrevious(before, after)
		sub, err = r.cache.Subscribe(want)
	}
	if v.sub = sub; err != nil {
		v.rv = 0
		return
	}
	v.sink, v.read = newRecorder(), 0
	v.sink.gzip = v.gzip
	w.flusher.Start(sub, v.sink)
}

// extend fetches the history of a replica from a resourceVersion on.
func (w *viewWorld) extend(r *replica, from uint64) {
	until := r.cache.Stats().Oldest
	var events []framing.Event
	for _, c := range w.history {
		switch {
		case c.rv <= from || c.rv > until:
		case c.after == nil:
			events = append(events, event("DELETED", c.before.at(c.rv)))
		case c.before == nil:
			events = append(events, event("ADDED", c.after))
		default:
			events = append(events, event("MODIFIED", c.after))
		}
	}
	r.cache.Extend(events, from, until)
}

func (v *viewer) list() {
	v.known = store{}
	s := v.replica.cache.Snapshot()
	v.rv = s.ResourceVersion
	s.Ascend(v.filter(v.replica.w.t), "", func(o *framing.Object) bool {
		v.known.take(strings.TrimSpace(string(o.TrimmedFrame(v.variant.Trim, framing.Added).Payload(nil))))
		return true
	})
}

// take reads what has come.
func (v *viewer) take(t testing.TB) {
	lines := v.sink.lines(t)
	for _, l := range lines[v.read:] {
		e := read(l)
		v.known.take(strings.TrimSpace(l))
		v.beginning = v.beginning && e.Type != "BOOKMARK"
		switch rv := e.Object.Metadata.ResourceVersion; {
		case v.beginning:
		case rv < v.rv:
			t.Errorf("%d after %d", rv, v.rv)
		default:
			v.rv = rv
		}
	}
	v.read = len(lines)
}

var versionMember = regexp.MustCompile(`"resourceVersion":"\d+"`)

// wants compares what the client holds with the view of its replica's state.
func (v *viewer) wants(t testing.TB) {
	t.Helper()
	want := make(map[string]string)
	selected := v.replica.w.spaces[v.replica.spaces].labels
	for _, o := range v.replica.w.stateAt(v.replica.at) {
		in := v.variant.Namespaces == nil || selected[o.namespace] != nil && v.variant.Namespaces.Matches(selected[o.namespace])
		if v.selector.matches(o) && v.has(o) && in {
			want[o.key()] = dataMember.ReplaceAllString(lean(o.json()), "")
		}
	}
	got := make(map[string]string)
	for key, object := range v.known {
		key = strings.TrimPrefix(key, "/")
		got[key] = strings.TrimSuffix(object, "}")
		if whole, ok := want[key]; ok && !v.variant.Trim.Quiet() && got[key] != whole {
			t.Errorf("%s: got %s, want %s", key, got[key], whole)
		}
		got[key] = versionMember.ReplaceAllString(got[key], "")
	}
	for key, object := range want {
		want[key] = versionMember.ReplaceAllString(object, "")
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v at %d of %d: got %v\nwant %v", v.selector, v.rv, v.replica.at, got, want)
	}
}

// relabel changes, deletes or creates namespaces.
func (w *viewWorld) relabel(rng *rand.Rand) {
	w.rv++
	now := maps.Clone(w.spaces[len(w.spaces)-1].labels)
	now[[]string{"a", "b", "a-b", "c"}[rng.IntN(4)]] = labels.Set{"team": []string{"a", "b"}[rng.IntN(2)]}
	w.spaces = append(w.spaces, spaces{w.rv, now})
}

// A client of a view holds at any time what the view has of the collection as its replica knows it:
// whatever changes, in objects or in namespaces, and however it begins, is cut off, resumes at another
// replica or after a restart, and through relists. A quiet one may hold older resourceVersions.
func TestViews(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			testViews(t, rand.New(rand.NewPCG(seed, 7)))
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}

// Lists and searches that were kept are of the namespaces as they were.
func TestNamespacesKey(t *testing.T) {
	w := newWorld(t, roomy)
	team, _ := labels.Parse("team=a")
	key := func(all map[string]labels.Set) string {
		w.cache.SetNamespaces(&fanout.NamespaceLabels{ByName: all}, ended)
		return everything(t).filter(t).In(nil, w.cache.Namespaces(team)).Key()
	}
	a, b := labels.Set{"team": "a"}, labels.Set{"team": "b"}
	first := key(map[string]labels.Set{"x": a, "y": b})
	same, other := key(map[string]labels.Set{"x": {"team": "a", "l": "1"}, "y": b}), key(map[string]labels.Set{"x": b, "y": b})
	if same != first || other == first {
		t.Errorf("keys are %q, %q, %q", first, same, other)
	}
	f := everything(t).filter(t).In(nil, w.cache.Namespaces(team)) // of a read that waits for a proof
	first, other = f.Key(), key(map[string]labels.Set{"x": a, "y": b})
	if f.Key() != other || other == first {
		t.Errorf("keys are %q and then %q, and of another filter %q", first, f.Key(), other)
	}
}

// What the forms of objects take is counted while the snapshot or the history has the objects, once for all
// versions that share a form.
func TestFormBytes(t *testing.T) {
	w := newWorld(t, fanout.Limits{HistoryEvents: 16, HistoryBytes: 1 << 30, ClientFrames: 1 << 20, ClientBytes: 1 << 30})
	before := int64(0)
	for i, form := range []*framing.Trim{dataless.With(nil, true), dataless} {
		v := &fanout.Variant{Trim: form}
		filter := everything(t).filter(t).In(form, nil)
		if _, err := w.cache.Subscribe(fanout.Request{Filter: filter, Variant: v, Timeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
		round := func() (at []int64) {
			w.put(managedThing("x"))
			for range 100 {
				x := managedThing("x")
				x.data = strings.Repeat("quiet", int(w.rv%3))
				w.put(x)
				at = append(at, w.cache.Stats().FormBytes)
			}
			w.del("a/x")
			return at
		}
		round()
		first, again := round(), round()
		if !slices.Equal(first[20:], again[20:]) || slices.Min(first) < 100 || slices.Max(first)-before > 16*1000 {
			t.Errorf("%d: forms take %v bytes, and then %v", i, first, again)
		}
		if stats := w.cache.Stats(); w.cache.Bytes() != stats.Bytes+stats.HistoryBytes+stats.FormBytes {
			t.Errorf("%d bytes of %+v", w.cache.Bytes(), stats)
		}
		before = again[99]
	}
	w.cache.Reset(nil, w.rv, ended)
	if n := w.cache.Stats().FormBytes; n != 0 {
		t.Errorf("forms of no objects take %d bytes", n)
	}
}

func testViews(t *testing.T, rng *rand.Rand) {
	flusher := newFlusher(2)
	run(t, flusher)
	w := &viewWorld{world: &world{t: t, flusher: flusher, rv: 100, things: make(map[string]*thing)}}
	w.spaces = []spaces{{rv: 90, labels: map[string]labels.Set{"a": {"team": "a"}, "b": {}, "a-b": {"team": "a"}}}}
	w.happens(rng, 10, false)
	replicas := []*replica{{w: w, at: w.rv}, {w: w, at: w.rv}}
	for _, r := range replicas {
		r.restart()
	}
	all, clients := views(), []*viewer(nil)
	for i := range 12 {
		s := []selector{everything(t), sel(t, "a", "", ""), sel(t, "", "l", ""), sel(t, "", "", "spec.node=n1"), sel(t, "", "m!=1", "")}[rng.IntN(5)]
		clients = append(clients, &viewer{viewed: all[i%len(all)], selector: s, gzip: rng.IntN(2) == 0})
	}
	for range 60 {
		switch r := replicas[rng.IntN(2)]; rng.IntN(12) {
		case 0:
			w.relabel(rng)
		case 1:
			r.skip()
		case 2:
			r.restart()
		case 3:
			time.Sleep(fanout.BookmarkEvery + time.Second)
		default:
			w.happens(rng, 1+rng.IntN(4), false)
		}
		for _, r := range replicas {
			r.follow(rng.IntN(6))
		}
		for _, v := range clients {
			switch {
			case v.sub == nil:
				v.begin(w, replicas[rng.IntN(2)], rng.IntN(2) == 0)
			case rng.IntN(6) == 0: // perhaps before it has got all that there is for it
				v.sub.End(fanout.Ending{Reason: fanout.Gone})
			}
		}
		synctest.Wait()
		for _, v := range clients {
			v.check(t)
		}
	}
	for range 3 { // a client may have to list
		w.happens(rng, 1, false)
		for _, r := range replicas {
			r.follow(len(w.history) + len(w.spaces))
		}
		for _, v := range clients {
			if v.sub == nil {
				v.begin(w, replicas[rng.IntN(2)], false)
			}
		}
		synctest.Wait()
		for _, v := range clients {
			v.check(t)
		}
	}
	for _, v := range clients {
		if v.sub == nil {
			t.Error("a client does not come back")
		} else {
			v.sub.End(fanout.Ending{Reason: fanout.Gone})
		}
	}
	synctest.Wait()
}

// check reads what has come to a client. An open watch has all; one that has ended goes on, or lists.
func (v *viewer) check(t *testing.T) {
	if v.sub == nil {
		return
	}
	v.take(t)
	switch {
	case !v.sink.ended() && max(v.rv, v.cut) > v.replica.at: // it may have seen more at the other replica
		return
	case !v.sink.ended():
		v.wants(t)
		return
	}
	v.cut = v.replica.w.rv
	if v.sub = nil; v.sink.reason == fanout.Expired || v.beginning {
		v.rv, v.beginning = 0, false
	}
}

// A client that has been shown a state in which a view had other namespaces can't resume from it, however new
// it is: the lane of namespaces may be behind, and a proof ahead of the cache.
func TestNamespacesShown(t *testing.T) {
	team, _ := labels.Parse("team=a")
	a, b := labels.Set{"team": "a"}, labels.Set{"team": "b"}
	for name, ahead := range map[string]uint64{"at progress": 0, "ahead of it": 10} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, roomy)
			w.cache.SetNamespaces(&fanout.NamespaceLabels{ByName: map[string]labels.Set{"a": b}}, ended)
			at := w.put(named("x"))
			f := everything(t).filter(t).In(nil, w.cache.Namespaces(team))
			s, err := w.cache.SnapshotProved(fanout.Proof{Epoch: w.cache.Epoch(), At: at, AsOf: at + ahead})
			if err != nil {
				t.Fatal(err)
			}
			s.Ascend(f, "", func(o *framing.Object) bool { t.Errorf("has %s", o.Key); return true })
			w.cache.SetNamespaces(&fanout.NamespaceLabels{ByName: map[string]labels.Set{"a": a}, Since: at - 1}, ended)
			want := fanout.Request{Filter: f, Start: fanout.FromVersion, ResourceVersion: s.ResourceVersion, Timeout: time.Hour}
			if _, err := w.cache.Subscribe(want); !errors.Is(err, fanout.ErrOutdated) {
				t.Errorf("without x, as of %d: %v", s.ResourceVersion, err)
			}
			want.ResourceVersion++
			if _, err := w.cache.Subscribe(want); err != nil {
				t.Error(err)
			}
		})
	}
}

// A cache that begins after etcd was restored, and is told of namespaces from before, takes those times back when it is
// told that they are of a past.
func TestNamespacesRestored(t *testing.T) {
	team, _ := labels.Parse("team=a")
	all := map[string]labels.Set{"a": {"team": "a"}}
	w := newWorld(t, roomy)
	w.cache.SetNamespaces(&fanout.NamespaceLabels{ByName: all, Since: 5000}, ended)
	at := w.put(named("x"))
	f := everything(t).filter(t).In(nil, w.cache.Namespaces(team))
	w.cache.SetNamespaces(&fanout.NamespaceLabels{ByName: all, Since: at, Gap: true}, ended)
	if !f.Outdated(at + 1) {
		t.Error("a gap takes times back")
	}
	w.cache.SetNamespaces(&fanout.NamespaceLabels{ByName: all, Since: at, Gap: true, Restored: at}, ended)
	if !f.Outdated(at) || f.Outdated(at+1) {
		t.Error("a client that has seen the restored state does not resume")
	}
}

// Events may be in an etcd of their own. Their resourceVersions are not compared with those of namespaces, however
// different they are: a client resumes from what it was shown, until a namespace has other labels.
func TestNamespacesApart(t *testing.T) {
	team, _ := labels.Parse("team=a")
	for _, ofNamespaces := range []uint64{1, 1 << 40} {
		w := newWorld(t, roomy)
		w.cache.SetApart()
		tell := func(team string, since uint64) {
			w.cache.SetNamespaces(&fanout.NamespaceLabels{ByName: map[string]labels.Set{"a": {"team": team}}, Since: since}, ended)
		}
		tell("a", ofNamespaces)
		at := w.put(named("x"))
		f := everything(t).filter(t).In(nil, w.cache.Namespaces(team))
		if f.Outdated(at) {
			t.Errorf("%d: a client does not resume", ofNamespaces)
		}
		tell("b", ofNamespaces+1)
		if next := w.put(named("x")); !f.Outdated(at) || f.Outdated(next) {
			t.Errorf("%d: after a change, it resumes from before, or not from behind", ofNamespaces)
		}
	}
}

// A view changes with the labels of a namespace if the cache has an object of it, or a change of one, however many
// others get the same labels.
func TestNamespacesInhabited(t *testing.T) {
	team, _ := labels.Parse("team=a")
	for namespace, changes := range map[string]bool{"full": true, "emptied": true, "empty": false} {
		for _, others := range []int{0, 100} {
			w := newWorld(t, roomy)
			w.put(thing{namespace: "full", name: "x"})
			w.put(thing{namespace: "emptied", name: "x"})
			w.del("emptied/x")
			tell := func(team string) {
				all := map[string]labels.Set{"full": {}, "emptied": {}, "empty": {}}
				all[namespace] = labels.Set{"team": team}
				for i := range others {
					all[fmt.Sprintf("other%d", i)] = labels.Set{"team": team}
				}
				w.cache.SetNamespaces(&fanout.NamespaceLabels{ByName: all}, ended)
			}
			tell("b")
			f := everything(t).filter(t).In(nil, w.cache.Namespaces(team))
			tell("a")
			if got := f.Outdated(w.rv); got != changes {
				t.Errorf("%s and %d others: changed %v, want %v", namespace, others, got, changes)
			}
		}
	}
}

// Many selections of namespaces are kept although no subscription uses them yet: a read may still wait.
func TestNamespacesKept(t *testing.T) {
	w := newWorld(t, roomy)
	tell := func(team string, since uint64) {
		w.cache.SetNamespaces(&fanout.NamespaceLabels{ByName: map[string]labels.Set{"a": {"team": team}}, Since: since}, ended)
	}
	tell("b", 0)
	w.put(named("x"))
	var filters []*fanout.Filter
	for i := range 100 {
		selector, _ := labels.Parse(fmt.Sprintf("team=a,n!=%d", i))
		filters = append(filters, everything(t).filter(t).In(nil, w.cache.Namespaces(selector)))
	}
	tell("c", 0) // they select as before
	for _, f := range filters {
		sub, err := w.cache.Subscribe(fanout.Request{Filter: f, Start: fanout.FromNow, Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Cancel()
	}
	tell("a", 0)
	for i, f := range filters {
		if o, _ := w.cache.Snapshot().Get("a/x"); !f.Match(o) {
			t.Fatalf("filter %d does not know", i)
		}
	}
}
