package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
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
	t.Parallel()
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
	return [2]*recording{s.watch(query), s.theirs.watch(s.t, s.uri+"?watch=1&"+query)}
}

// awaitBookmark waits for a bookmark, and causes progress for it.
func (s *stage) awaitBookmark(r *recording) {
	s.t.Helper()
	eventually(s.t, 90*time.Second, "a bookmark", func() error {
		if len(bookmarksOf(r.all())) > 0 {
			return nil
		}
		s.patch("o", fmt.Sprintf(`{"data":{"k":"%d"}}`, time.Now().UnixNano()))
		return fmt.Errorf("none among %d events", len(r.all()))
	})
}

// equal waits until both have ended and compares them.
func (s *stage) equal(pair [2]*recording) []event {
	s.t.Helper()
	got := pair[0].finish(s.t, 20*time.Second)
	pair[1].finish(s.t, 20*time.Second)
	if err := compare(pair[0].objects(), pair[1].objects()); err != nil {
		s.t.Errorf("%s: %v", pair[0].uri, err)
	}
	if d := pair[0].lasted() - pair[1].lasted(); d.Abs() > apart(time.Second) {
		s.t.Errorf("%s lasted %s, kube-apiserver's %s", pair[0].uri, pair[0].lasted(), pair[1].lasted())
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
	all, one := s.twins(fmt.Sprintf("resourceVersion=%d&timeoutSeconds=8", rv)),
		s.twins(fmt.Sprintf("resourceVersion=%d&labelSelector=sel%%3D1&timeoutSeconds=8", rv))
	s.create("o", "")
	s.patch("o", `{"metadata":{"labels":{"sel":"1"}}}`)
	s.patch("o", `{"data":{"k":"1"}}`)
	left := s.patch("o", `{"metadata":{"labels":{"sel":null}},"data":{"k":"2"}}`)
	s.patch("o", `{"metadata":{"labels":{"sel":"1"}}}`)
	gone := s.remove("o")
	_ = gone
	got := s.equal(one)
	if types(got) != "ADDED MODIFIED DELETED ADDED DELETED" {
		t.Fatalf("got %s", types(got))
	}
	if e := got[2]; e.rv != left || !strings.Contains(e.line, `"sel":"1"`) || !strings.Contains(e.line, `"k":"1"`) {
		t.Errorf("the object that left the selector at %d comes as %s", left, e.line)
	}
	if got := s.equal(all); types(got) != "ADDED MODIFIED MODIFIED MODIFIED MODIFIED DELETED" {
		t.Errorf("got %s", types(got))
	}
	late := s.twins(fmt.Sprintf("resourceVersion=%d&labelSelector=sel%%3D1&timeoutSeconds=3", rv))
	if err := compare(s.equal(late), got); err != nil {
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
			"&allowWatchBookmarks=true&timeoutSeconds=600" + version)
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
		for n := 1; ; n++ {
			if events := withoutBookmarks(r.wait(t, n)); len(events) > 2 {
				if events[2].rv != next {
					t.Errorf("behind the initial events comes %s, want the change of %d", events[2], next)
				}
				break
			}
		}
		r.stop()
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
		pairs = append(pairs, s.twins(q+"&timeoutSeconds=8"))
	}
	other := "/api/v1/namespaces/fromnow-later/configmaps"
	later := s.ours.watch(t, other+"?watch=1&timeoutSeconds=8")
	time.Sleep(300 * time.Millisecond)
	s.create("new", "")
	createNamespaces(t, s.theirs, "fromnow-later")
	makeConfigMap(t, s.theirs, "fromnow-later", "first", "")
	for _, p := range pairs {
		if got := s.equal(p); len(got) != 1 || got[0].key != "fromnow/new" {
			t.Errorf("%s brought %v", p[0].uri, got)
		}
	}
	if got := later.finish(t, 10*time.Second); len(got) != 1 || got[0].key != "fromnow-later/first" {
		t.Errorf("a namespace that came later brought %v", got)
	}
}

// W20, W26, W27: "identical suffixes"; "disconnect at each event index i, resume from RV_i:
// concatenation = full sequence".
func TestWatchResume(t *testing.T) {
	s := newStage(t, "resume")
	rv := s.now()
	full := s.theirs.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d&timeoutSeconds=600", s.uri, rv))
	live := s.watch(fmt.Sprintf("resourceVersion=%d&timeoutSeconds=600", rv))
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
	var wg sync.WaitGroup
	for i, e := range want {
		wg.Go(func() {
			r := s.watch(fmt.Sprintf("resourceVersion=%d&timeoutSeconds=4", e.rv))
			if err := compare(r.finish(t, 10*time.Second), want[i+1:]); err != nil {
				t.Errorf("resumed behind event %d: %v", i, err)
			}
		})
	}
	wg.Wait()

	// A client that disconnects now and then and resumes from its last event or bookmark.
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(15 * time.Millisecond):
				s.create(fmt.Sprintf("r%d", i), "")
			}
		}
	})
	last := want[29].rv
	var seen []event
	for n := 0; n < 8 || len(seen) < 20 && n < 80; n++ {
		r := s.watch(fmt.Sprintf("resourceVersion=%d&allowWatchBookmarks=true&timeoutSeconds=60", last))
		time.Sleep(150 * time.Millisecond)
		r.stop()
		events := r.all()
		seen = append(seen, r.objects()...)
		if len(events) > 0 {
			last = events[len(events)-1].rv
		}
	}
	close(stop)
	writer.Wait()
	all := full.wait(t, 30+len(seen))
	if err := compare(seen, all[30:30+len(seen)]); err != nil || len(seen) < 20 {
		t.Errorf("%d events in pieces: %v", len(seen), err)
	}
	full.stop()
	live.stop()
}

// W19: "all events, RVs strictly increasing, no duplicates".
func TestWatchFastWrites(t *testing.T) {
	s := newStage(t, "fast")
	rv := s.now()
	query := fmt.Sprintf("resourceVersion=%d&timeoutSeconds=600", rv)
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
	// The twin comes afterwards: at this rate kube-apiserver may end a watch for being slow.
	late := s.theirs.watch(t, s.uri+"?watch=1&"+query)
	got, want := live.wait(t, 8*63), late.wait(t, 8*63)
	if err := compare(got, want); err != nil {
		t.Error(err)
	}
	if err := checkOrder(got, 0); err != nil {
		t.Error(err)
	}
	live.stop()
	late.stop()
}

// W22, W24: a bookmark comes two seconds before the timeout, if there was progress, and none if the
// timeout is under two seconds. Its bytes are kube-apiserver's, except the resourceVersion.
func TestWatchBookmarks(t *testing.T) {
	s := newStage(t, "bookmarked")
	s.create("o", "")
	if !s.theirs.enables(t, watchList) { // the form of bookmarks is learned from the first, after a minute
		r := s.watch("resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=600")
		s.awaitBookmark(r)
		r.stop()
	}
	rv := s.now()
	s.patch("o", `{"data":{"k":"1"}}`)
	s.create("p", "")
	pair := s.twins(
		fmt.Sprintf("resourceVersion=%d&allowWatchBookmarks=true&timeoutSeconds=5&fieldSelector=metadata.name%%3Do",
			rv))
	short := s.watch(
		fmt.Sprintf("resourceVersion=%d&allowWatchBookmarks=true&timeoutSeconds=2&fieldSelector=metadata.name%%3Do",
			rv))
	for range 20 { // progress for the bookmark
		s.patch("p", fmt.Sprintf(`{"data":{"k":"%d"}}`, time.Now().UnixNano()))
		time.Sleep(100 * time.Millisecond)
	}
	got := s.equal(pair)
	if n := strings.Count(types(got), "BOOKMARK"); n == 0 || n > 2 {
		t.Errorf("got %s", types(got))
	}
	ours, theirs := bookmarksOf(got), bookmarksOf(pair[1].all())
	if len(ours) > 0 && len(theirs) > 0 {
		plain := func(e event) string { return strings.Replace(e.line, fmt.Sprint(e.rv), "RV", 1) }
		if plain(ours[0]) != plain(theirs[0]) {
			t.Errorf("bookmark\n%swant\n%s", plain(ours[0]), plain(theirs[0]))
		}
		if d := ours[0].at.Sub(pair[0].opened) - theirs[0].at.Sub(pair[1].opened); d.Abs() > apart(2*time.Second) {
			t.Errorf("bookmark comes %s apart", d)
		}
	}
	if got := short.finish(t, 10*time.Second); strings.Contains(types(got), "BOOKMARK") {
		t.Errorf("a watch of two seconds brought %s", types(got))
	}
}

func bookmarksOf(events []event) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.typ != "BOOKMARK" })
}

// W38, W39: "headers arrive before the first event", "one event on an idle stream is received
// within 50 ms". On a small machine the load of other tests costs more than watchfan does, so
// kube-apiserver's own delay is the measure.
func TestWatchLatency(t *testing.T) {
	s := newStage(t, "latency")
	pair := s.twins(fmt.Sprintf("resourceVersion=%d&timeoutSeconds=600", s.now()))
	if took := pair[0].headed.Sub(pair[0].opened); took > apart(time.Second) {
		t.Errorf("the head of an idle watch took %s", took)
	}
	var extra []time.Duration
	for i := range 20 {
		s.create(fmt.Sprintf("l%d", i), "")
		ours, theirs := pair[0].wait(t, i+1)[i], pair[1].wait(t, i+1)[i]
		extra = append(extra, ours.at.Sub(theirs.at))
		time.Sleep(20 * time.Millisecond)
	}
	slices.Sort(extra)
	t.Logf("behind kube-apiserver: median %s, worst %s", extra[10], extra[19])
	if extra[10] > apart(50*time.Millisecond) {
		t.Errorf("the median event comes %s behind kube-apiserver's", extra[10])
	}
	pair[0].stop()
	pair[1].stop()
}

// W35, W46, W47: finalizers, recreation, and an update that changes nothing.
func TestWatchOneObject(t *testing.T) {
	s := newStage(t, "one")
	pair := s.twins(fmt.Sprintf("resourceVersion=%d&fieldSelector=metadata.name%%3Dx&timeoutSeconds=8", s.now()))
	s.create("x", "")
	s.create("y", "")
	s.patch("x", `{"data":{"k":"0"}}`) // nothing
	s.remove("x")
	s.create("x", "")
	s.patch("x", `{"metadata":{"finalizers":["e2e.example.com/f"]}}`)
	s.remove("x")
	s.patch("x", `{"metadata":{"finalizers":null}}`)
	if got := s.equal(pair); types(got) != "ADDED DELETED ADDED MODIFIED MODIFIED DELETED" {
		t.Errorf("got %s", types(got))
	}
}
