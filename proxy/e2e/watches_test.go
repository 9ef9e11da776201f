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
