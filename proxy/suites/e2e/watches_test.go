package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// stage is a test's namespace, two ways to it, and a client there.
type stage struct {
	ours, theirs *target
	uri          string // of the namespace's ConfigMaps
	ns           string
}

func newStage(t *testing.T, ns string) *stage {
	t.Helper()
	parallel(t)
	c := sharedCluster(t)
	s := &stage{ours: sharedWatchfan(t).plain(t), theirs: c.direct(t), ns: ns,
		uri: "/api/v1/namespaces/" + ns + "/configmaps"}
	createNamespaces(t, s.theirs, ns)
	s.ours.get(t, s.uri+"?resourceVersion=0") // a lane to answer from
	return s
}

// W22, W24: a bookmark comes before the timeout, if there was progress, and none if the timeout is under
// two seconds. Its bytes are kube-apiserver's, except the resourceVersion. Its times are those of
// fanout.TestBookmarkSchedule.
func TestWatchBookmarks(t *testing.T) {
	s := newStage(t, "bookmarked")
	makeConfigMap(t, s.theirs, s.ns, "p", "")
	n := 0
	progress := func() {
		n++
		s.theirs.patch(t, s.uri+"/p", fmt.Sprintf(`{"data":{"k":"%d"}}`, n))
		pace(nil, 50*time.Millisecond)
	}
	if !s.theirs.enables(t, watchList) { // the form of bookmarks is learned from the first, after a minute
		r := s.ours.watch(t, s.uri+"?watch=1&resourceVersion=0&allowWatchBookmarks=true")
		steady.Until(t, "bookmark", func() error {
			if progress(); len(bookmarksOf(r.all())) > 0 {
				return nil
			}
			return fmt.Errorf("none among %d events", len(r.all()))
		})
		r.stop()
	}
	rv := makeConfigMap(t, s.theirs, s.ns, "o", "")
	progress()
	query := func(seconds int) string {
		return fmt.Sprintf("%s?watch=1&resourceVersion=%d&allowWatchBookmarks=true&timeoutSeconds=%d&fieldSelector=metadata.name%%3Do",
			s.uri, rv, seconds)
	}
	var ours, theirs []event
	steady.Until(t, "bookmark of both", func() error {
		got, want, short := s.ours.watch(t, query(5)), s.theirs.watch(t, query(5)), s.ours.watch(t, query(2))
		for got.open() || want.open() || short.open() {
			progress()
		}
		if events := short.finish(t); len(bookmarksOf(events)) > 0 {
			t.Errorf("a watch of two seconds brought %s", format(events))
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
