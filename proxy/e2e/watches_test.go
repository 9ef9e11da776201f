package e2e_test

import (
	"fmt"
	"slices"
	"strings"
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
func (s *stage) now() uint64                    { return s.theirs.version(s.t, s.uri) }

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

func types(events []event) string {
	var s []string
	for _, e := range events {
		s = append(s, e.typ)
	}
	return strings.Join(s, " ")
}

// W22, W24: a bookmark comes before the timeout, if there was progress, and none if the timeout is under
// two seconds. Its bytes are kube-apiserver's, except the resourceVersion. Its times are those of
// fanout.TestBookmarkSchedule.
func TestWatchBookmarks(t *testing.T) {
	s := newStage(t, "bookmarked")
	s.create("o", "")
	if !s.theirs.enables(t, watchList) { // the form of bookmarks is learned from the first, after a minute
		r := s.ours.watch(t, s.uri+"?watch=1&resourceVersion=0&allowWatchBookmarks=true")
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
