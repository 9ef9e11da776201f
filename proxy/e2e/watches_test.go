package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// stage is a test's namespace, two ways to it, and a client there.
type stage struct {
	t            *testing.T
	ours, theirs *target
	uri          string // of the namespace's ConfigMaps
	ns           string
}

func newStage(t *testing.T, ns string) *stage {
	t.Helper()
	parallel(t)
	c := sharedCluster(t)
	s := &stage{t: t, ours: sharedWatchfan(t).plain(t), theirs: c.direct(t), ns: ns,
		uri: "/api/v1/namespaces/" + ns + "/configmaps"}
	createNamespaces(t, s.theirs, ns)
	s.ours.get(t, s.uri+"?resourceVersion=0") // a lane to answer from
	return s
}

func (s *stage) create(name, labels string) uint64 {
	return makeConfigMap(s.t, s.theirs, s.ns, name, labels)
}
func (s *stage) patch(name, body string) uint64 { return s.theirs.patch(s.t, s.uri+"/"+name, body) }
func (s *stage) remove(name string) uint64      { return s.theirs.remove(s.t, s.uri+"/"+name) }
func (s *stage) now() uint64                    { return s.theirs.version(s.t, s.uri) }
func (s *stage) watch(query string) *recording {
	return s.ours.watch(s.t, s.uri+"?watch=1&"+query)
}

// twins begins a watch both ways.
func (s *stage) twins(query string) [2]*recording {
	return [2]*recording{s.watch(query), s.theirs.follow(s.t, s.uri+"?watch=1&"+query)}
}

// awaitBookmark waits for a bookmark, and causes progress for it.
func (s *stage) awaitBookmark(r *recording) {
	s.t.Helper()
	n := 0
	steady.Until(s.t, "bookmark", func() error {
		if len(bookmarksOf(r.all())) > 0 {
			return nil
		}
		n++
		s.patch("o", fmt.Sprintf(`{"data":{"k":"awaited %d"}}`, n))
		return fmt.Errorf("none among %d events", len(r.all()))
	})
}

// equal compares what two watches bring up to the resourceVersion last, at which both bring an event, and
// returns that without bookmarks.
func (s *stage) equal(pair [2]*recording, last uint64) []event {
	s.t.Helper()
	return equalTwins(s.t, pair, last)
}

func equalTwins(t testing.TB, pair [2]*recording, last uint64) []event {
	t.Helper()
	got, want := withoutBookmarks(pair[0].until(t, last)), withoutBookmarks(pair[1].until(t, last))
	if err := compare(got, want); err != nil {
		t.Errorf("%s: %v", pair[0].uri, err)
	}
	return got
}

func types(events []event) string {
	var s []string
	for _, e := range events {
		s = append(s, e.typ)
	}
	return strings.Join(s, " ")
}

// W01, W02, W04, W12: "exactly ADDED, MODIFIED, DELETED(old data, new RV), ADDED, DELETED", live
// and replayed from history.
func TestWatchSelectorTransitions(t *testing.T) {
	s := newStage(t, "transitions")
	rv := s.now()
	all, one := s.twins(fmt.Sprintf("resourceVersion=%d", rv)),
		s.twins(fmt.Sprintf("resourceVersion=%d&labelSelector=sel%%3D1", rv))
	s.create("o", "")
	s.patch("o", `{"metadata":{"labels":{"sel":"1"}}}`)
	s.patch("o", `{"data":{"k":"1"}}`)
	left := s.patch("o", `{"metadata":{"labels":{"sel":null}},"data":{"k":"2"}}`)
	s.patch("o", `{"metadata":{"labels":{"sel":"1"}}}`)
	s.remove("o")
	last := s.create("marker", `"sel":"1"`)
	got := s.equal(one, last)
	if types(got) != "ADDED MODIFIED DELETED ADDED DELETED ADDED" {
		t.Fatalf("got %s", types(got))
	}
	if e := got[2]; e.rv != left || !strings.Contains(e.line, `"sel":"1"`) || !strings.Contains(e.line, `"k":"1"`) {
		t.Errorf("the object that left the selector at %d comes as %s", left, e.line)
	}
	if got := s.equal(all, last); types(got) != "ADDED MODIFIED MODIFIED MODIFIED MODIFIED DELETED ADDED" {
		t.Errorf("got %s", types(got))
	}
	late := s.twins(fmt.Sprintf("resourceVersion=%d&labelSelector=sel%%3D1", rv))
	if err := compare(s.equal(late, last), got); err != nil {
		t.Errorf("from history: %v", err)
	}
}

// W08, W09: "current state ADDED, bookmark RV ≥ R0, no replay".
func TestWatchListAtVersion(t *testing.T) {
	s := newStage(t, "watchlist")
	s.theirs.needs(t, watchList)
	s.create("o", "")
	rv := s.now()
	s.patch("o", `{"data":{"k":"1"}}`)
	s.create("p", "")
	last := s.patch("o", `{"data":{"k":"2"}}`)
	var watches []*recording
	for _, version := range []string{"", fmt.Sprintf("&resourceVersion=%d", rv),
		fmt.Sprintf("&resourceVersion=%d", last)} {
		pair := s.twins("sendInitialEvents=true&resourceVersionMatch=NotOlderThan" +
			"&allowWatchBookmarks=true" + version)
		got, want := pair[0].initial(t), pair[1].initial(t)
		if err := compare(withoutBookmarks(got), withoutBookmarks(want)); err != nil {
			t.Errorf("from %q: %v", version, err)
		}
		watches = append(watches, pair[0])
		pair[1].stop()
		if types(got) != "ADDED ADDED BOOKMARK" || !got[2].end ||
			version != fmt.Sprintf("&resourceVersion=%d", rv) && got[2].rv < last {
			t.Errorf("from %q got %v", version, got)
		}
	}
	next := s.patch("o", `{"data":{"k":"3"}}`)
	for _, r := range watches {
		if events := withoutBookmarks(r.until(t, next)); len(events) != 3 {
			t.Errorf("behind the initial events comes %s, want the change of %d", format(events[2:]), next)
		}
	}
}

// W11, W13, W42: nothing until the next write, then that write; also in a namespace that does not
// exist yet.
func TestWatchFromNow(t *testing.T) {
	s := newStage(t, "fromnow")
	s.theirs.needs(t, watchList)
	s.create("old", "")
	var pairs [][2]*recording
	for _, q := range []string{"sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
		"sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0"} {
		pairs = append(pairs, s.twins(q))
	}
	other := "/api/v1/namespaces/fromnow-later/configmaps"
	later := s.ours.watch(t, other+"?watch=1")
	last := s.create("new", "") // behind the heads of all answers
	for _, p := range pairs {
		if got := s.equal(p, last); len(got) != 1 || got[0].key != "fromnow/new" {
			t.Errorf("%s brought %v", p[0].uri, got)
		}
	}
	createNamespaces(t, s.theirs, "fromnow-later")
	if got := later.until(t, makeConfigMap(t, s.theirs, "fromnow-later", "first", "")); len(got) != 1 {
		t.Errorf("a namespace that came later brought %v", got)
	}
}

// W20, W26, W27: "identical suffixes"; "disconnect at each event index i, resume from RV_i:
// concatenation = full sequence".
func TestWatchResume(t *testing.T) {
	s := newStage(t, "resume")
	rv := s.now()
	full := s.theirs.follow(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", s.uri, rv))
	live := s.watch(fmt.Sprintf("resourceVersion=%d", rv))
	for i := range 10 {
		name := fmt.Sprintf("o%d", i%3)
		s.create(name, fmt.Sprintf(`"n":"%d"`, i))
		s.patch(name, `{"data":{"k":"1"}}`)
		s.remove(name)
	}
	want := full.wait(t, 30)
	if err := compare(live.wait(t, 30), want); err != nil {
		t.Errorf("live: %v", err)
	}
	for i, e := range want[:29] {
		r := s.watch(fmt.Sprintf("resourceVersion=%d", e.rv))
		if err := compare(r.until(t, want[29].rv), want[i+1:]); err != nil {
			t.Errorf("resumed behind event %d: %v", i, err)
		}
	}

	// A client that disconnects now and then and resumes from its last event or bookmark.
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; pace(stop, 15*time.Millisecond); i++ {
			s.create(fmt.Sprintf("r%d", i), "")
		}
	})
	last := want[29].rv
	var seen []event
	for n := 0; n < 8; n++ {
		r := s.watch(fmt.Sprintf("resourceVersion=%d&allowWatchBookmarks=true", last))
		r.wait(t, 1+n)
		r.stop()
		events := r.all()
		seen, last = append(seen, r.objects()...), events[len(events)-1].rv
	}
	close(stop)
	writer.Wait()
	all := full.wait(t, 30+len(seen))
	if err := compare(seen, all[30:30+len(seen)]); err != nil || len(seen) < 20 {
		t.Errorf("%d events in pieces: %v", len(seen), err)
	}
}

// W19: "all events, RVs strictly increasing, no duplicates".
func TestWatchFastWrites(t *testing.T) {
	s := newStage(t, "fast")
	rv := s.now()
	query := fmt.Sprintf("resourceVersion=%d", rv)
	live := s.watch(query)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 63 {
				s.create(fmt.Sprintf("f-%d-%d", w, i), "")
			}
		})
	}
	wg.Wait()
	late := s.theirs.follow(t, s.uri+"?watch=1&"+query)
	got, want := live.wait(t, 8*63), late.wait(t, 8*63)
	if err := compare(got, want); err != nil {
		t.Error(err)
	}
	if err := checkOrder(got, 0); err != nil {
		t.Error(err)
	}
}

// W22, W24: a bookmark comes before the timeout, if there was progress, and none if the timeout is under
// two seconds. Its bytes are kube-apiserver's, except the resourceVersion. Its times are those of
// fanout.TestBookmarkSchedule.
func TestWatchBookmarks(t *testing.T) {
	s := newStage(t, "bookmarked")
	s.create("o", "")
	if !s.theirs.enables(t, watchList) { // the form of bookmarks is learned from the first, after a minute
		r := s.watch("resourceVersion=0&allowWatchBookmarks=true")
		s.awaitBookmark(r)
		r.stop()
	}
	rv := s.now()
	s.patch("o", `{"data":{"k":"1"}}`)
	s.create("p", "")
	query := func(seconds int) string {
		return fmt.Sprintf("%s?watch=1&resourceVersion=%d&allowWatchBookmarks=true&timeoutSeconds=%d&fieldSelector=metadata.name%%3Do",
			s.uri, rv, seconds)
	}
	var ours, theirs []event
	n := 0
	steady.Until(t, "bookmark of both", func() error {
		got, want, short := s.ours.watch(t, query(5)), s.theirs.watch(t, query(5)), s.ours.watch(t, query(2))
		for got.open() || want.open() || short.open() { // progress for the bookmark
			n++
			s.patch("p", fmt.Sprintf(`{"data":{"k":"%d"}}`, n))
			pace(nil, 50*time.Millisecond)
		}
		if events := short.finish(t); len(bookmarksOf(events)) > 0 {
			t.Errorf("a watch of two seconds brought %s", types(events))
		}
		if ours, theirs = bookmarksOf(got.finish(t)), bookmarksOf(want.finish(t)); len(ours) == 0 || len(theirs) == 0 {
			return fmt.Errorf("%d, and %d at kube-apiserver", len(ours), len(theirs))
		}
		return nil
	})
	plain := func(e event) string { return strings.Replace(e.line, fmt.Sprint(e.rv), "RV", 1) }
	if plain(ours[0]) != plain(theirs[0]) || len(ours) > 2 {
		t.Errorf("%d bookmarks\n%swant\n%s", len(ours), plain(ours[0]), plain(theirs[0]))
	}
}

func bookmarksOf(events []event) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.typ != "BOOKMARK" })
}

// W35, W46, W47: finalizers, recreation, and an update that changes nothing.
func TestWatchOneObject(t *testing.T) {
	s := newStage(t, "one")
	pair := s.twins(fmt.Sprintf("resourceVersion=%d&fieldSelector=metadata.name%%3Dx", s.now()))
	s.create("x", "")
	s.create("y", "")
	s.patch("x", `{"data":{"k":"0"}}`) // nothing
	s.remove("x")
	s.create("x", "")
	s.patch("x", `{"metadata":{"finalizers":["e2e.example.com/f"]}}`)
	s.remove("x")
	s.patch("x", `{"metadata":{"finalizers":null}}`)
	if got := s.equal(pair, s.create("x", "")); types(got) != "ADDED DELETED ADDED MODIFIED MODIFIED DELETED ADDED" {
		t.Errorf("got %s", types(got))
	}
}
