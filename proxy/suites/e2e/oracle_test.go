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

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
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

const streamed = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

var starts = []start{
	{name: "RV", query: "resourceVersion=RV", exact: true},
	{name: "RV with bookmarks", query: "resourceVersion=RV&allowWatchBookmarks=true", exact: true},
	{name: "SIE with bookmarks", query: streamed + "&allowWatchBookmarks=true", initial: true, fresh: true, modern: true},
	{name: "SIE without bookmarks", query: streamed, initial: true, fresh: true, modern: true},
	{name: "SIE from RV", query: streamed + "&allowWatchBookmarks=true&resourceVersion=RV", initial: true, modern: true},
	{name: "RV 0", query: "resourceVersion=0", initial: true},
	{name: "RV unset", query: "allowWatchBookmarks=true", initial: true},
	{name: "SIE from 0", query: streamed + "&resourceVersion=0&allowWatchBookmarks=1", initial: true, modern: true},
	{name: "SIE=false from RV", query: "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=RV", exact: true, modern: true},
	{name: "from now", query: "sendInitialEvents=false&resourceVersionMatch=NotOlderThan", fresh: true, modern: true},
	{name: "from 0", query: "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0", modern: true},
}

// pair is a watch through watchfan and its twin at kube-apiserver.
type pair struct {
	selection selection
	start     start
	least     uint64 // the oldest state that they may begin with
	ours      *recording
	theirs    *recording
}

func (p *pair) String() string { return p.ours.uri }

// startPair begins both watches at about the same time.
func startPair(t *testing.T, ours, theirs *target, s selection, st start, rv, acknowledged uint64) *pair {
	t.Helper()
	p := &pair{selection: s, start: st}
	switch {
	case st.exact:
		p.least = rv
	case st.fresh:
		p.least = acknowledged
	}
	uri := fmt.Sprintf("%s?%s&%s", s.path, s.query, strings.ReplaceAll(st.query, "RV", fmt.Sprint(rv)))
	if !s.legacy {
		uri += "&watch=true"
	}
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { p.ours, errs[0] = ours.record(t.Context(), uri, s.accept(), false) })
	wg.Go(func() { p.theirs, errs[1] = theirs.record(t.Context(), uri, s.accept(), true) })
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Errorf("watch %s: %v", uri, err)
		return nil
	}
	return p
}

// await waits until both watches have brought their last events behind resourceVersion rv. A kube-apiserver
// that is not sharded ignores a half.
func (p *pair) await(t *testing.T, m *model, rv uint64, sharded bool) {
	t.Helper()
	theirs := p.selection.filter
	theirs.lean = false // kube-apiserver has managedFields
	if !sharded {
		theirs.half = 0
	}
	for _, w := range []struct {
		filter filter
		watch  *recording
	}{{p.selection.filter, p.ours}, {theirs, p.theirs}} {
		if last := m.last(w.filter); last > rv {
			w.watch.await(t, fmt.Sprintf("event at %d", last), func(events []event) bool {
				return len(events) > 0 && events[len(events)-1].rv >= last
			})
		}
	}
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
	ended := func(r *recording) bool { return slices.ContainsFunc(r.all(), func(e event) bool { return e.end }) }
	if ours, theirs := ended(p.ours), ended(p.theirs); ours != theirs {
		return fmt.Errorf("there is an end bookmark: %t, and at kube-apiserver: %t", ours, theirs)
	}
	return nil
}

// TestOracle checks the main promise: "each watcher gets exactly the events, byte for byte and in
// order, that a watcher with the same selector gets from kube-apiserver itself".
func TestOracle(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	x := &comparison{watchers: *watchers, namespaces: []string{"oracle", "oracle-b", "zoracle"}}
	x.run(t, c, privateWatchfan(t, c, "--drain-duration=0s"))
}

// comparison is many pairs of watches, and the writer and the reference beside them.
type comparison struct {
	watchers   int
	namespaces []string
	midway     func() // is called once all have begun; nil does nothing
	end        func() // is called before watchfan ends; nil does nothing

	ways    []*target // through watchfan, in the order of p.ways
	theirs  *target
	work    *churn
	first   uint64  // at or before the churn; the reference begins here
	initial int     // of the reference's events are initial ones
	behind  []event // the bookmark behind them, if kube-apiserver does not send one
	modern  bool    // kube-apiserver has watch-lists
	pairs   []*pair
}

// reference begins a watch of everything and returns when it has brought its initial events. Nobody
// else writes ConfigMaps meanwhile.
func (x *comparison) reference(t *testing.T) *recording {
	t.Helper()
	const uri = "/api/v1/configmaps"
	x.modern = x.theirs.enables(t, watchList)
	const query = "?watch=1&allowWatchBookmarks=true"
	if x.modern {
		r := x.theirs.follow(t, uri+query)
		initial := r.initial(t)
		x.first = initial[len(initial)-1].rv
		return r
	}
	var list registerList
	if err := json.Unmarshal(x.theirs.get(t, uri).body, &list); err != nil {
		t.Fatal(err)
	}
	x.first, x.initial = x.theirs.version(t, uri), len(list.Items)
	x.behind = []event{{typ: "BOOKMARK", rv: x.first, end: true}}
	r := x.theirs.follow(t, uri+query+"&resourceVersion=0")
	r.wait(t, x.initial)
	return r
}

// run lets watchers of p, and a twin of each at kube-apiserver, watch the churn in some namespaces. In the
// end it ends p, and with it the watches: each has then brought all its events.
func (x *comparison) run(t *testing.T, c *cluster, p *watchfan) {
	t.Helper()
	x.ways, x.theirs, x.pairs = p.ways(t, c.token(t, "reader")), c.direct(t), make([]*pair, x.watchers)
	createNamespaces(t, x.theirs, x.namespaces...)
	p.waitReady(t)
	rng := steady.Rand(t)
	reference := x.reference(t)
	x.work = &churn{target: x.theirs, namespaces: x.namespaces, rate: 100, names: 24, seed: rng.Uint64()}
	stop := x.work.start(t)
	x.work.await(t, 20)
	x.open(t, rng)
	if x.midway != nil {
		x.midway()
	}
	x.work.await(t, *writes)
	stop()
	x.work.check(t)
	before := x.work.last.Load()
	last := x.work.sweep(t)

	m, err := newModel(slices.Insert(reference.until(t, last), x.initial, x.behind...))
	if err != nil {
		t.Fatal(err)
	}
	sharded := x.theirs.enables(t, shardedListAndWatch)
	for _, pair := range x.pairs {
		if pair != nil {
			pair.await(t, m, before, sharded)
		}
	}
	admin := p.admin(t)
	if watches := admin.metric(t, "watchfan_upstream_watches", `resource="configmaps"`); watches != 1 {
		t.Errorf("watchfan_upstream_watches of configmaps is %v, want 1", watches)
	}
	t.Logf("%v requests were passed through", admin.metric(t, "watchfan_passthrough_requests_total"))
	if x.end != nil {
		x.end()
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	x.check(t, m)
}

// open begins all pairs: a third at once, the others one after another during the churn and from random
// resourceVersions of the past.
func (x *comparison) open(t *testing.T, rng *rand.Rand) {
	t.Helper()
	all := selections(x.namespaces)
	var opening sync.WaitGroup
	gate := make(chan struct{}, 8)
	third := len(x.pairs) / 3
	for i := range x.pairs {
		s, st := all[i%len(all)], starts[(i*7+i/len(all))%len(starts)]
		if st.modern && (s.legacy || !x.modern) {
			st = starts[i%2]
		}
		if i >= third {
			x.work.await(t, (i-third)**writes/len(x.pairs))
		}
		now := x.work.last.Load()
		rv := now
		if i%2 == 1 && now > x.first {
			rv = now - rng.Uint64N(min(now-x.first, 300))
		}
		if i >= third { // the lane is filled
			s = s.vary(i)
		}
		way := x.ways[[]int{0, 2, 0, 1}[(i+i/4)%4]]
		if i%5 > 2 {
			way = way.zipped()
		}
		gate <- struct{}{}
		opening.Go(func() {
			defer func() { <-gate }()
			x.pairs[i] = startPair(t, way, x.theirs, s, st, rv, now)
		})
	}
	opening.Wait()
}

// check compares the watches of each pair with each other and with the model. watchfan has ended.
func (x *comparison) check(t *testing.T, m *model) {
	t.Helper()
	counts := make(map[string]int)
	for _, p := range x.pairs {
		if p == nil {
			continue
		}
		counts["events"] += len(p.ours.finish(t))
		p.theirs.stop()
		for kind, yes := range map[string]bool{"with gzip": p.ours.header.Get("Content-Encoding") == "gzip",
			"without managedFields": p.selection.filter.lean && proxytest.FromCache(p.ours.header), "of a half": p.selection.filter.half != 0} {
			if yes {
				counts[kind]++
			}
		}
		if err := p.check(m); err != nil {
			if counts["failed"]++; counts["failed"] <= 5 {
				t.Errorf("%s (%s): %v", p, p.start.name, err)
			}
		}
	}
	t.Logf("%d pairs, %d changes in the reference: %v", len(x.pairs), len(m.log), counts)
	if counts["without managedFields"] == 0 || counts["of a half"] == 0 || counts["with gzip"] < len(x.pairs)/5 || counts["events"] < len(x.pairs)*10 {
		t.Error("that is too little to show anything")
	}
}
