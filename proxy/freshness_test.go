package proxy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// large is the data of an object that makes a collection too large to be listed for a proof.
var large = strings.Repeat("x", 300<<10)

func impatient(o *proxy.Options) { o.Lane.FreshnessTimeout = 1500 * time.Millisecond }

// later opens a watch on a goroutine of its own.
func (f *fan) later(path string) <-chan *proxytest.Watcher {
	c := make(chan *proxytest.Watcher, 1)
	go func() {
		w, err := proxytest.TryOpen(f.t, f.insecure+path)
		if err != nil {
			f.t.Error(err)
			w = nil
		}
		c <- w
	}()
	return c
}

func (f *fan) awaitOpen(c <-chan *proxytest.Watcher) *proxytest.Watcher {
	f.t.Helper()
	select {
	case w := <-c:
		if w == nil {
			f.t.FailNow()
		}
		return w
	case <-time.After(proxytest.Patience):
		f.t.Fatal("watch was not answered")
	}
	return nil
}

func (f *fan) notYet(what string, c <-chan *proxytest.Watcher) {
	f.t.Helper()
	select {
	case w := <-c:
		f.t.Fatalf("%s: watch was answered: %s", what, w.Strings())
	case <-time.After(150 * time.Millisecond):
	}
}

// One proof serves all requests that came before it began. A later request waits for the next
// proof.
func TestProofsAreShared(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "1")
	f.watch(anyState).Await(2)
	st := f.up.Reflector()
	st.Hold()
	release := make(chan struct{})
	f.up.On(proxytest.List, 1, func(c *proxytest.Call) {
		c.Serve()
		<-release
	})
	first := f.later(fresh)
	f.up.AwaitCount(proxytest.List, 1)
	time.Sleep(50 * time.Millisecond) // the list's state is taken
	f.cms.Put("ns", "b", "1")         // the first watch need not see it, and the others must
	var others []<-chan *proxytest.Watcher
	for range 20 {
		others = append(others, f.later(fresh))
	}
	time.Sleep(100 * time.Millisecond)
	close(release)
	wantStrings(t, "the first watch", proxytest.Strings(f.awaitOpen(first).Await(2)), "ADDED ns/a 101", "END 101")
	f.notYet("before the write has come", others[0])
	st.Release()
	for _, c := range others {
		wantStrings(t, "a later watch", proxytest.Strings(f.awaitOpen(c).Await(3)), "ADDED ns/a 101",
			"ADDED ns/b 102", "END 102")
	}
	if n := f.up.Count(proxytest.List); n > 3 {
		t.Errorf("%d lists for 21 watches", n)
	}
	f.passed(0)
}

// A watch that waits for a proof by list does not see changes between the cache and the list that
// have undone each other.
func TestProofByListSkipsChurn(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "1")
	old := f.watch(anyState)
	old.Await(2)
	st := f.up.Reflector()
	st.Hold()
	f.cms.Put("ns", "b", "1")
	f.cms.Delete("ns", "b")
	w, none := f.watch(fresh),
		f.watch(cmsPath+"?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	wantStrings(t, "watch", proxytest.Strings(w.Await(2)), "ADDED ns/a 101", "END 103")
	st.Release()
	f.cms.Put("ns", "c", "1")
	wantStrings(t, "watch", proxytest.Strings(w.Await(3)), "ADDED ns/a 101", "END 103", "ADDED ns/c 104")
	wantStrings(t, "watch from now", proxytest.Strings(none.Await(1)), "ADDED ns/c 104")
	wantStrings(t, "older watch", proxytest.Strings(old.Await(5)), "ADDED ns/a 101", "END 101", "ADDED ns/b 102",
		"DELETED ns/b 103", "ADDED ns/c 104")
	f.passed(0)
}

// A state older than the request is not shown. The watch waits for the lane's own stream. If that
// is too late, the watch passes through.
func TestProofWaits(t *testing.T) {
	for name, data := range map[string]string{"list": "1", "watch": large} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFan(t, proxytest.NewServer(t), proxy.SpareLists)
			f.cms.Put("ns", "a", data)
			f.watch(anyState).Await(2)
			st := f.up.Reflector()
			st.Hold()
			f.cms.Put("ns", "b", "1")
			f.up.Bump(3)
			c := f.later(fresh)
			f.notYet("with a stream that lags behind", c)
			st.Release()
			w := f.awaitOpen(c)
			rv := f.cms.Put("ns", "c", "1")
			events := w.AwaitVersion(rv)
			if events[2].RV < 102 {
				t.Errorf("end bookmark at %d", events[2].RV)
			}
			got := proxytest.Strings(slices.Delete(slices.Clone(events), 2, 3))
			wantStrings(t, "watch", got, "ADDED ns/a 101", "ADDED ns/b 102", "ADDED ns/c 106")
			f.passed(0)
		})
		t.Run(name+" in vain", func(t *testing.T) {
			t.Parallel()
			f := startFan(t, proxytest.NewServer(t), impatient, proxy.SpareLists)
			f.cms.Put("ns", "a", data)
			f.watch(anyState).Await(2)
			f.up.Reflector().Hold()
			f.cms.Put("ns", "b", "1")
			wantStrings(t, "watch", proxytest.Strings(f.watch(fresh).Await(3)), "ADDED ns/a 101",
				"ADDED ns/b 102", "END 102")
			f.passed(1)
		})
	}
}

// A large quiet collection is proved by a second watch's bookmark.
func TestProofByWatch(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t), proxy.SpareLists)
	f.cms.Put("ns", "a", large)
	old := f.watch(anyState)
	old.Await(2)
	f.up.Bump(5)
	var watches []<-chan *proxytest.Watcher
	for range 10 {
		watches = append(watches, f.later(fresh))
	}
	for _, c := range watches {
		w := f.awaitOpen(c)
		wantStrings(t, "watch", proxytest.Strings(w.Await(2)), "ADDED ns/a 101", "END 106")
	}
	p, s, l := f.up.Count(proxytest.Probe), f.up.Count(proxytest.Short), f.up.Count(proxytest.List)
	if p > 3 || s > 3 || l != 0 {
		t.Errorf("%d probes, %d second watches, %d lists for 10 watches", p, s, l)
	}
	f.up.Reflector().Abort() // the lane resumes from the resourceVersion of the proof
	f.up.AwaitCount(proxytest.Watch, 1)
	if rv := f.up.Requests(proxytest.Watch)[0].Query.Get("resourceVersion"); rv != "106" {
		t.Errorf("resumed from %s, want 106", rv)
	}
	f.passed(0)
}

// If a proof fails, the watch passes through. If a second watch says nothing, another begins.
func TestProofFails(t *testing.T) {
	cms := proxytest.ConfigMaps
	for name, test := range map[string]struct {
		data   string
		kind   proxytest.Kind
		answer func(*proxytest.Call)
		again  bool // another second watch begins in time
	}{
		"list refused": {"1", proxytest.List, func(c *proxytest.Call) {
			c.Fail(500, "InternalError", "no", 0)
		}, false},
		"list breaks": {"1", proxytest.List, func(c *proxytest.Call) { c.Write(`{"kind":`); c.Abort() }, false},
		"list hangs":  {"1", proxytest.List, (*proxytest.Call).Hang, false},
		"list of garbage": {"1", proxytest.List, func(c *proxytest.Call) {
			c.Write(cms.ListBody("106", "", `{}`))
		}, false},
		"list at ''":    {"1", proxytest.List, func(c *proxytest.Call) { c.Write(cms.ListBody("", "")) }, false},
		"probe refused": {large, proxytest.Probe, func(c *proxytest.Call) { c.Fail(422, "Invalid", "no", 0) }, false},
		"probe ends":    {large, proxytest.Probe, func(c *proxytest.Call) { c.Write(`{"kind":`) }, false},
		"probe hangs":   {large, proxytest.Probe, (*proxytest.Call).Hang, false},
		"probe fails":   {large, proxytest.Probe, func(c *proxytest.Call) { c.Fail(504, "Timeout", "", 1) }, false},
		"second watch refused": {large, proxytest.Short, func(c *proxytest.Call) {
			c.Fail(429, "TooManyRequests", "no", 1)
		}, false},
		"second watch too old": {large, proxytest.Short, func(c *proxytest.Call) {
			c.Write(proxytest.ErrorEvent(410, "Expired", ""))
		}, false},
		"second watch ends":  {large, proxytest.Short, func(c *proxytest.Call) { c.Write("") }, false},
		"second watch hangs": {large, proxytest.Short, (*proxytest.Call).Hang, true},
		"bookmark too old": {large, proxytest.Short, func(c *proxytest.Call) {
			c.Write(cms.Bookmark(105, false))
		}, false},
		"an event we never get": {large, proxytest.Short, func(c *proxytest.Call) {
			c.Write(cms.Event("ADDED", "ns", "q", 105), cms.Bookmark(106, false))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFan(t, proxytest.NewServer(t), impatient, proxy.SpareLists)
			f.cms.Put("ns", "a", test.data)
			f.watch(anyState).Await(2)
			f.up.Bump(5)
			f.up.On(test.kind, 1, test.answer)
			wantStrings(t, "watch", proxytest.Strings(f.watch(fresh).Await(2)), "ADDED ns/a 101", "END 106")
			passed, count := 1, 1
			if test.again {
				passed, count = 0, 2
			}
			f.passed(passed)
			if f.up.Count(test.kind) != count {
				t.Errorf("%d requests of kind %s, want %d", f.up.Count(test.kind), test.kind, count)
			}
			f.watch(fresh).Await(2) // the next proof succeeds
			f.passed(passed)
		})
	}
}

// The collection is listed again while a proof is under way.
func TestProofDuringRelist(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t), proxy.SpareLists)
	f.cms.Put("ns", "a", large)
	f.watch(anyState).Await(2)
	f.up.Bump(5)
	release := make(chan struct{})
	f.up.On(proxytest.Short, 1, func(c *proxytest.Call) {
		<-release
		c.Serve()
	})
	f.up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { // the relist is older than the probe's answer
		c.Write(f.cms.Event("ADDED", "ns", "a", 101), f.cms.Bookmark(103, true))
		c.Hang()
	})
	c := f.later(fresh)
	f.up.AwaitCount(proxytest.Short, 1)
	f.up.Reflector().Send("garbage\n")
	f.awaitLog("relisted=true")
	close(release)
	w := f.awaitOpen(c)
	wantStrings(t, "watch", proxytest.Strings(w.Await(2)), "ADDED ns/a 101", "END 106")
}

// "a state at least as fresh as the resourceVersion": a WatchList from a resourceVersion that the
// cache has not reached waits for it, or passes through.
func TestWatchListNotOlderThan(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t), impatient)
	f.cms.Put("ns", "a", "1")
	f.watch(anyState).Await(2)
	rv := f.up.Bump(5)
	const path = cmsPath +
		"?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=%d"
	wantStrings(t, "behind", proxytest.Strings(f.watch(path, 100).Await(2)), "ADDED ns/a 101", "END 101")
	if f.up.Count(proxytest.List) != 0 {
		t.Error("a version that the cache has passed was proved")
	}
	wantStrings(t, "ahead", proxytest.Strings(f.watch(path, rv).Await(2)), "ADDED ns/a 101", "END 106")
	f.passed(0)
	f.watch(path, rv+1000).Await(2)
	f.passed(1)
}

// A resource without a watch cache upstream is never proved.
func TestUncachedIsNotProved(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t))
	events := f.up.Collection(proxytest.Events)
	events.Put("ns", "e", "1")
	path := "/api/v1/events?watch=1&allowWatchBookmarks=true"
	f.watch("%s&resourceVersion=0", path).Await(2)
	f.passed(0)
	f.watch("%s", path).Await(2)
	f.passed(1)
}

// There is a writer, streams lag and break, and clients ask for the current state. Each client gets
// one state that upstream had at or after the request, and a watch then gets everything that
// followed.
func TestFreshnessSimulation(t *testing.T) {
	t.Parallel()
	for name, spare := range map[string]bool{"list": false, "large list": false, "watch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := large
			if name == "list" {
				data = "1"
			}
			s := newFreshnessSimulation(t, data, spare)
			stop := make(chan struct{})
			var writer, readers sync.WaitGroup
			writer.Go(func() { s.write(stop) })
			for range 3 {
				readers.Go(s.openWatches)
			}
			for range 3 {
				readers.Go(s.readLists)
			}
			readers.Wait()
			close(stop)
			writer.Wait()
			last := s.f.cms.Put("ns", "last", "1")
			s.note()
			for _, w := range s.watchers {
				s.checkWatch(w, last)
			}
			up := s.f.up
			t.Logf("%d watches, %d passed through; %d lists, %d probes, %d second watches, %d relists, %d resumed",
				len(s.watchers), up.Count(proxytest.Client), up.Count(proxytest.List), up.Count(proxytest.Probe),
				up.Count(proxytest.Short), up.Count(proxytest.WatchList)-1, up.Count(proxytest.Watch))
		})
	}
}

// freshnessSimulation is a proxy, and what its upstream and its clients have seen.
type freshnessSimulation struct {
	f *fan

	mu       sync.Mutex
	states   map[uint64]map[string]uint64 // upstream's, by resourceVersion
	watchers []*proxytest.Watcher         // all that have been opened
}

// newFreshnessSimulation starts a proxy whose upstream lags. One object has the data. If spare is
// true, no large collection is listed for a proof.
func newFreshnessSimulation(t *testing.T, data string, spare bool) *freshnessSimulation {
	up := proxytest.NewServer(t)
	up.SetBookmarkAfter(20 * time.Millisecond)
	up.SetDelay(func(proxytest.Kind) time.Duration {
		if rand.N(30) == 0 {
			return 60 * time.Millisecond
		}
		return rand.N(4 * time.Millisecond)
	})
	change := proxy.NoneAlone
	if spare {
		change = func(o *proxy.Options) { proxy.NoneAlone(o); proxy.SpareLists(o) }
	}
	s := &freshnessSimulation{f: startFan(t, up, change), states: make(map[uint64]map[string]uint64)}
	s.f.cms.Put("ns", "large", data)
	s.f.watch(anyState).Await(2)
	s.note()
	return s
}

// note keeps upstream's state.
func (s *freshnessSimulation) note() {
	state, rv := s.f.cms.State()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[rv] = state
}

// at returns upstream's state as of a resourceVersion.
func (s *freshnessSimulation) at(rv uint64) map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.states[rv] == nil {
		rv--
	}
	return s.states[rv]
}

// write changes objects, and breaks the reflector's stream twice. It is the only writer, so each
// state is noted before the next write.
func (s *freshnessSimulation) write(stop <-chan struct{}) {
	up, cms := s.f.up, s.f.cms
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(rand.N(8 * time.Millisecond)):
		}
		name := fmt.Sprintf("o%d", rand.N(6))
		state, _ := cms.State()
		switch _, exists := state["ns/"+name]; {
		case rand.N(10) == 0:
			up.Bump(1)
		case exists && rand.N(2) == 0:
			cms.Delete("ns", name)
		default:
			cms.Put("ns", name, "1")
		}
		s.note()
		switch i { // only two, because the reflector's pauses grow
		case 50:
			up.Reflector().Abort()
		case 100:
			up.Reflector().Send("garbage\n")
		}
		if rand.N(15) == 0 { // a quiet time
			up.Bump(1)
			s.note()
			time.Sleep(150 * time.Millisecond)
		}
	}
}

// openWatches opens watches that begin with the current state, and checks how new that is.
func (s *freshnessSimulation) openWatches() {
	t := s.f.t
	for range 25 {
		_, asked := s.f.cms.State()
		w, err := proxytest.TryOpen(t, s.f.insecure+fresh)
		if err != nil || w.Code != http.StatusOK {
			t.Errorf("watch: %v", err)
			return
		}
		for deadline := time.Now().Add(proxytest.Patience); ; time.Sleep(time.Millisecond) {
			events := w.Events()
			if slices.ContainsFunc(events, func(e proxytest.Event) bool { return e.End }) {
				if end := events[endOf(events)].RV; end < asked {
					t.Errorf("asked at %d, got the state as of %d", asked, end)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("no end of the initial events in %s", w.Strings())
				return
			}
		}
		s.mu.Lock()
		s.watchers = append(s.watchers, w)
		s.mu.Unlock()
		time.Sleep(rand.N(50 * time.Millisecond))
	}
}

// readLists reads consistent lists, and compares each with upstream's state at its resourceVersion.
func (s *freshnessSimulation) readLists() {
	for range 40 {
		_, asked := s.f.cms.State()
		got, rv := s.f.listVersions(cmsPath)
		if had := s.at(rv); rv < asked || !maps.Equal(got, had) {
			s.f.t.Errorf("asked at %d, got %v as of %d, upstream had %v", asked, got, rv, had)
		}
		time.Sleep(rand.N(30 * time.Millisecond))
	}
}

// checkWatch compares what a watch got up to the resourceVersion last with what upstream had: the
// initial events, the order of the events, and the state that all of them lead to.
func (s *freshnessSimulation) checkWatch(w *proxytest.Watcher, last uint64) {
	t := s.f.t
	events := w.AwaitVersion(last)
	n := endOf(events)
	end := events[n].RV
	if got, had := proxytest.Fold(events[:n]), s.at(end); !maps.Equal(got, had) {
		t.Errorf("initial events as of %d: got %v, upstream had %v", end, got, had)
	}
	seen := end
	for _, e := range events[n+1:] {
		// The deletions of a relist have the resourceVersion before it, and a bookmark may have the
		// resourceVersion of the event before it.
		if e.RV < seen || e.RV == seen && e.Type != "DELETED" && e.Type != "BOOKMARK" {
			t.Errorf("%s after %d, all: %s", e, seen, proxytest.Strings(events))
		}
		seen = e.RV
	}
	final, _ := s.f.cms.State()
	if got := proxytest.Fold(events); !maps.Equal(got, final) {
		t.Errorf("watch from %d ends with %v, upstream has %v; got %s", end, got, final, proxytest.Strings(events))
	}
}

// listVersions lists a collection and returns the objects' versions and the list's.
func (f *fan) listVersions(path string) (versions map[string]uint64, rv uint64) {
	_, body := f.get(path)
	var list struct {
		Metadata metav1.ListMeta
		Items    []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		f.t.Errorf("%v: %.200s", err, body)
	}
	versions = make(map[string]uint64)
	for _, o := range list.Items {
		versions[o.Namespace+"/"+o.Name], _ = strconv.ParseUint(o.ResourceVersion, 10, 64)
	}
	rv, _ = strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	return versions, rv
}

// endOf returns the index of the bookmark that ends the initial events.
func endOf(events []proxytest.Event) int {
	return slices.IndexFunc(events, func(e proxytest.Event) bool { return e.End })
}
