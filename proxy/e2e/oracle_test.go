package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// selection is one way to select ConfigMaps.
type selection struct {
	path   string // of the collection
	query  string
	legacy bool // the deprecated /watch/ prefix
	filter filter
}

func newSelection(path, labelSelector, fieldSelector string) selection {
	q := make(url.Values)
	if labelSelector != "" {
		q.Set("labelSelector", labelSelector)
	}
	if fieldSelector != "" {
		q.Set("fieldSelector", fieldSelector)
	}
	s := selection{path: path, query: q.Encode(), legacy: strings.Contains(path, "/watch/")}
	s.filter.labels, _ = labels.Parse(labelSelector)
	s.filter.fields = fields.ParseSelectorOrDie(fieldSelector)
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/")
	if s.legacy {
		parts = parts[1:]
	}
	if parts[0] == "namespaces" {
		s.filter.namespace, parts = parts[1], parts[2:]
	}
	if len(parts) == 2 { // …/watch/namespaces/NS/configmaps/NAME
		s.filter.fields = fields.OneTermEqualSelector("metadata.name", parts[1])
	}
	return s
}

func selections(ns []string) []selection {
	all, one, other := "/api/v1/configmaps", "/api/v1/namespaces/"+ns[0]+"/configmaps",
		"/api/v1/namespaces/"+ns[1]+"/configmaps"
	return []selection{
		newSelection(all, "", ""),
		newSelection(all, "app=a", ""),
		newSelection(all, "app in (a,b)", ""),
		newSelection(all, "app!=a", ""),
		newSelection(all, "app notin (a,c),tier", ""),
		newSelection(all, "tier", ""),
		newSelection(all, "!tier", ""),
		newSelection(all, "app=b,tier=x", ""),
		newSelection(all, "num>5", ""),
		newSelection(all, "num<7,app", ""),
		newSelection(one, "", ""),
		newSelection(other, "", ""),
		newSelection(one, "app==c", ""),
		newSelection(other, "app in (b,c),!num", ""),
		newSelection(all, "", "metadata.name=cm-3"),
		newSelection(one, "", "metadata.name=cm-4"),
		newSelection(one, "tier=y", "metadata.name=cm-5"),
		newSelection(all, "", "metadata.name!=cm-3"),
		newSelection(all, "", "metadata.namespace="+ns[1]),
		newSelection(all, "app", "metadata.namespace!="+ns[0]+",metadata.name!=cm-1"),
		newSelection("/api/v1/watch/configmaps", "", ""),
		newSelection("/api/v1/watch/configmaps", "app=a", ""),
		newSelection("/api/v1/watch/namespaces/"+ns[0]+"/configmaps", "tier", ""),
		newSelection("/api/v1/watch/namespaces/"+ns[0]+"/configmaps/cm-6", "", ""),
	}
}

// vary returns s for client i of the later ones. Some ask for objects without managedFields, some for a
// half of them.
func (s selection) vary(i int) selection {
	s.filter.lean = i%4 < 2
	if i%6 == 0 && !s.legacy {
		s.filter.half = 1 + i/6%2
		s.query += "&shardSelector=" + url.QueryEscape(halves("uid")[s.filter.half-1])
	}
	return s
}

// accept is the Accept header of s.
func (s selection) accept() http.Header {
	if s.filter.lean {
		return accept(jsonType + drop)
	}
	return nil
}

// start is one way to begin a watch.
type start struct {
	name    string
	query   string // RV is replaced
	initial bool   // with the state
	exact   bool   // at the resourceVersion that was asked for, so that two such streams are equal
	fresh   bool   // as new as the request
	modern  bool   // not under the /watch/ prefix
}

var starts = []start{
	{name: "RV", query: "resourceVersion=RV", exact: true},
	{name: "RV with bookmarks", query: "resourceVersion=RV&allowWatchBookmarks=true", exact: true},
	{name: "SIE with bookmarks",
		query: "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", initial: true,
		fresh: true, modern: true},
	{name: "SIE without bookmarks", query: "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", initial: true,
		fresh: true, modern: true},
	{name: "SIE from RV",
		query:   "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=RV",
		initial: true, modern: true},
	{name: "RV 0", query: "resourceVersion=0", initial: true},
	{name: "RV unset", query: "allowWatchBookmarks=true", initial: true},
	{name: "SIE from 0",
		query:   "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0&allowWatchBookmarks=1",
		initial: true, modern: true},
	{name: "SIE=false from RV", query: "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=RV",
		exact: true, modern: true},
	{name: "from now", query: "sendInitialEvents=false&resourceVersionMatch=NotOlderThan", fresh: true, modern: true},
	{name: "from 0", query: "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0",
		modern: true},
}

// pair is a watch through watchfan and its twin at kube-apiserver.
type pair struct {
	selection selection
	start     start
	rv, least uint64 // where they begin, and the oldest state that they may begin with
	lasting   time.Duration
	ours      *recording
	theirs    *recording
}

func (p *pair) String() string { return p.ours.uri }

// startPair begins both watches at about the same time. They end by themselves.
func startPair(t *testing.T, ours, theirs *target, s selection, st start, rv, acknowledged uint64,
	lasting time.Duration) *pair {
	t.Helper()
	p := &pair{selection: s, start: st, rv: rv, lasting: lasting.Truncate(time.Second)}
	switch {
	case st.exact:
		p.least = rv
	case st.fresh:
		p.least = acknowledged
	}
	query := strings.ReplaceAll(st.query, "RV", fmt.Sprint(rv))
	uri := fmt.Sprintf("%s?%s&%s&timeoutSeconds=%d", s.path, s.query, query, int(lasting.Seconds()))
	if !s.legacy {
		uri += "&watch=true"
	}
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { p.ours, errs[0] = ours.tryWatch(t.Context(), uri, s.accept()) })
	wg.Go(func() { p.theirs, errs[1] = theirs.tryWatch(t.Context(), uri, s.accept()) })
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Errorf("watch %s: %v", uri, err)
		return nil
	}
	return p
}

// check compares the two streams, and each with the model.
func (p *pair) check(m *model) error {
	f := p.selection.filter
	var objects [][]event
	for _, r := range []*recording{p.ours, p.theirs} {
		events := r.all()
		switch {
		case r == p.theirs:
			events = f.cut(events)
		case !proxytest.FromCache(r.header): // which has managedFields, and never anything of the other half
			events = filter{lean: f.lean}.cut(events)
		}
		objects = append(objects, withoutBookmarks(events))
		initial, err := m.explain(f, events, p.start.initial, max(p.least, m.at))
		if err == nil {
			err = checkOrder(events, initial)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.target.name, err)
		}
	}
	if p.start.exact {
		return compare(objects[0], objects[1])
	}
	ends := func(r *recording) (n int) {
		for _, e := range r.all() {
			if e.end {
				n++
			}
		}
		return n
	}
	if ours, theirs := ends(p.ours), ends(p.theirs); ours != theirs {
		return fmt.Errorf("%d end bookmarks, kube-apiserver sends %d", ours, theirs)
	}
	return nil
}

// TestOracle checks the main promise: "each watcher gets exactly the events, byte for byte and in
// order, that a watcher with the same selector gets from kube-apiserver itself".
func TestOracle(t *testing.T) {
	c := sharedCluster(t)
	compareWatchers(t, c, privateWatchfan(t, c), []string{"oracle", "oracle-b", "zoracle"}, *watchers, nil)
}

// comparison is many pairs of watches, and the writer and the reference beside them.
type comparison struct {
	ways       []*target // through watchfan, in the order of p.ways
	theirs     *target
	namespaces []string
	work       *churn
	begin      time.Time     // of the writes
	lasting    time.Duration // of the first pairs; all end at about the same time
	first      uint64        // at or before the churn; the reference begins here
	initial    int           // of the reference's events are initial ones
	end        []event       // the bookmark behind them, if kube-apiserver does not send one
	modern     bool          // kube-apiserver has watch-lists
	pairs      []*pair
}

// reference begins a watch of everything and returns when it has brought its initial events. Nobody
// else writes ConfigMaps meanwhile.
func (x *comparison) reference(t *testing.T) *recording {
	t.Helper()
	const uri = "/api/v1/configmaps"
	x.modern = x.theirs.enables(t, watchList)
	query := fmt.Sprintf("?watch=1&allowWatchBookmarks=true&timeoutSeconds=%d", int(x.lasting.Seconds())+4)
	if x.modern {
		r := x.theirs.watch(t, uri+query)
		initial := r.initial(t)
		x.first = initial[len(initial)-1].rv
		return r
	}
	var list registerList
	if err := json.Unmarshal(x.theirs.get(t, uri).body, &list); err != nil {
		t.Fatal(err)
	}
	x.first, x.initial = x.theirs.version(t, uri), len(list.Items)
	x.end = []event{{typ: "BOOKMARK", rv: x.first, end: true}}
	r := x.theirs.watch(t, uri+query+"&resourceVersion=0")
	r.wait(t, x.initial)
	return r
}

// compareWatchers lets watchers of p, and a twin of each at kube-apiserver, watch the churn in some
// namespaces. It calls midway, if there is one, once all have begun.
func compareWatchers(t *testing.T, c *cluster, p *watchfan, ns []string, watchers int, midway func()) {
	t.Helper()
	x := &comparison{ways: p.ways(t, c.token(t, "reader")), theirs: c.direct(t), namespaces: ns,
		pairs: make([]*pair, watchers)}
	createNamespaces(t, x.theirs, ns...)
	p.waitReady(t)

	begin := time.Now()
	x.theirs.watch(t, "/api/v1/configmaps?watch=1&resourceVersion=0").stop()
	one := time.Since(begin) // how long this machine needs to begin a watch
	x.lasting = *churnFor + 6*time.Second + time.Duration(watchers)*max(20*time.Millisecond, 2*one)
	reference := x.reference(t)
	x.work = &churn{target: x.theirs, namespaces: ns, rate: *writes, names: 24, seed: *seed}
	stop, written := make(chan struct{}), make(chan error, 1)
	x.begin = time.Now()
	go func() { written <- x.work.run(stop) }()
	time.Sleep(500 * time.Millisecond)
	x.open(t, rand.New(rand.NewPCG(*seed, 0)))
	if midway != nil {
		midway()
	}
	time.Sleep(*churnFor - time.Since(x.begin))
	close(stop)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	wrote := time.Since(x.begin)
	x.work.check(t, wrote)
	if wrote > x.lasting-2*time.Second {
		t.Fatalf("the machine took %s to begin %d pairs, whose watches last %s from the beginning",
			wrote, watchers, x.lasting)
	}

	reference.finish(t, x.lasting+10*time.Second)
	reference.complete(t, x.lasting+4*time.Second)
	m, err := newModel(slices.Insert(reference.all(), x.initial, x.end...))
	if err != nil {
		t.Fatal(err)
	}
	x.check(t, m)
	admin := p.admin(t)
	if watches := admin.metric(t, "watchfan_upstream_watches", `resource="configmaps"`); watches != 1 {
		t.Errorf("watchfan_upstream_watches of configmaps is %v, want 1", watches)
	}
	if n := admin.metric(t, "watchfan_passthrough_requests_total"); n > 0 {
		t.Logf("%v requests were passed through", n)
	}
}

// open begins all pairs: a third at once, the others at random moments and from random
// resourceVersions of the past.
func (x *comparison) open(t *testing.T, rng *rand.Rand) {
	t.Helper()
	all := selections(x.namespaces)
	var opening sync.WaitGroup
	gate := make(chan struct{}, 8)
	for i := range x.pairs {
		s, st := all[i%len(all)], starts[(i*7+i/len(all))%len(starts)]
		if st.modern && (s.legacy || !x.modern) {
			st = starts[i%2]
		}
		if i >= len(x.pairs)/3 {
			pause := (*churnFor - time.Since(x.begin) - time.Second) / time.Duration(len(x.pairs)-i)
			time.Sleep(time.Duration(rng.Int64N(int64(max(2*pause, 1)))))
		}
		now := x.work.last.Load()
		rv := now
		if i%2 == 1 && now > x.first {
			rv = now - rng.Uint64N(min(now-x.first, 300))
		}
		if i >= len(x.pairs)/3 { // the lane is filled
			s = s.vary(i)
		}
		way := x.ways[[]int{0, 2, 0, 1}[(i+i/4)%4]]
		if i%5 > 2 {
			way = way.zipped()
		}
		gate <- struct{}{}
		opening.Go(func() {
			defer func() { <-gate }()
			x.pairs[i] = startPair(t, way, x.theirs, s, st, rv, now, x.lasting-time.Since(x.begin))
		})
	}
	opening.Wait()
}

// check waits for the end of all pairs, and compares the watches of each with each other and with
// the model.
func (x *comparison) check(t *testing.T, m *model) {
	t.Helper()
	events, failed, cut, zipped, lean, halved := 0, 0, 0, 0, 0, 0
	for _, p := range x.pairs {
		if p == nil {
			continue
		}
		p.ours.finish(t, x.lasting)
		p.theirs.finish(t, x.lasting)
		if d := p.ours.lasted() - p.lasting; d.Abs() > apart(1500*time.Millisecond) {
			t.Errorf("%s lasted %s, want %s", p, p.ours.lasted(), p.lasting)
		}
		if p.theirs.complete(t, p.lasting) {
			cut++
		}
		events += len(p.ours.all())
		if p.ours.header.Get("Content-Encoding") == "gzip" {
			zipped++
		}
		if p.selection.filter.lean && proxytest.FromCache(p.ours.header) {
			lean++
		}
		if p.selection.filter.half != 0 {
			halved++
		}
		if err := p.check(m); err != nil {
			failed++
			if failed <= 5 {
				t.Errorf("%s (%s): %v", p, p.start.name, err)
			}
		}
	}
	t.Logf("%d pairs, %d of them with gzip, %d without managedFields and %d of a half, %d events through watchfan, "+
		"%d changes in the reference, %d pairs differ; kube-apiserver ended %d early", len(x.pairs), zipped, lean, halved,
		events, len(m.log), failed, cut)
	if lean == 0 || halved == 0 {
		t.Errorf("%d watches without managedFields and %d of a half show nothing", lean, halved)
	}
	if zipped < len(x.pairs)/5 {
		t.Errorf("%d of %d watches were compressed", zipped, len(x.pairs))
	}
	if events < len(x.pairs)*10 {
		t.Errorf("%d events through watchfan are too few to show anything", events)
	}
}
