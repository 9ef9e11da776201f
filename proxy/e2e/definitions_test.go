package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// widgetVersion is one version of the widgets that the tests of this file define, each in a group
// of its own.
type widgetVersion struct {
	name       string
	stored     bool
	hidden     bool   // not served
	fields     string // selectable, separated by spaces
	filler     string // default of spec.filler for objects that are stored without it; "" for no such field
	deprecated string // the warning; "" if it is not
}

func (v widgetVersion) String() string {
	var fields []string
	for f := range strings.FieldsSeq(v.fields) {
		fields = append(fields, fmt.Sprintf(`{"jsonPath":%q}`, f))
	}
	filler := ""
	if v.filler != "" {
		filler = fmt.Sprintf(`,"filler":{"type":"string","default":%q}`, v.filler)
	}
	deprecated := ""
	if v.deprecated != "" {
		deprecated = fmt.Sprintf(`"deprecated":true,"deprecationWarning":%q,`, v.deprecated)
	}
	return fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,%s"selectableFields":[%s],
"schema":{"openAPIV3Schema":{"type":"object","properties":{"kind":{"type":"string"},"spec":{"type":"object","default":{},
"properties":{"c":{"type":"string"},"n":{"type":"integer"},"b":{"type":"boolean"},"deep-er":{"type":"object",
"properties":{"x_1":{"type":"string"}}}%s}}}}}}`,
		v.name, !v.hidden, v.stored, deprecated, strings.Join(fields, ","), filler)
}

func widgetSpec(group string, versions []widgetVersion) string {
	var all []string
	for _, v := range versions {
		all = append(all, v.String())
	}
	return fmt.Sprintf(`"spec":{"group":%q,"scope":"Namespaced","names":{"plural":"widgets","singular":"widget",`+
		`"kind":"Widget","listKind":"WidgetList"},"versions":[%s]}`,
		group, strings.Join(all, ","))
}

// defineWidgets creates the definition and waits until kube-apiserver serves the first version.
func defineWidgets(t *testing.T, d *target, group string, versions ...widgetVersion) {
	t.Helper()
	d.create(t, definitionsPath,
		fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",`+
			`"metadata":{"name":"widgets.%s"},%s}`,
			group, widgetSpec(group, versions)))
	eventually(t, 20*time.Second, "widgets."+group, func() error {
		resp, err := d.try(http.MethodGet, "/apis/"+group+"/"+versions[0].name+"/widgets?watch=1&timeoutSeconds=1", nil,
			"")
		if err == nil && resp.status != http.StatusOK {
			err = fmt.Errorf("%d: %s", resp.status, resp.body)
		}
		return err
	})
}

func redefineWidgets(t *testing.T, d *target, group string, versions ...widgetVersion) {
	t.Helper()
	d.patch(t, definitionsPath+"/widgets."+group, "{"+widgetSpec(group, versions)+"}")
}

// widgets is a collection of widgets in a namespace.
type widgets struct {
	t      *testing.T
	theirs *target
	gv     string
	uri    string
}

func newWidgets(t *testing.T, d *target, group, version, ns string) *widgets {
	return &widgets{t, d, group + "/" + version, fmt.Sprintf("/apis/%s/%s/namespaces/%s/widgets", group, version, ns)}
}

func (w *widgets) create(name, spec string) uint64 {
	w.t.Helper()
	return w.theirs.create(w.t, w.uri,
		fmt.Sprintf(`{"apiVersion":%q,"kind":"Widget","metadata":{"name":%q},"spec":{%s}}`, w.gv, name, spec))
}

func (w *widgets) patch(name, spec string) uint64 {
	w.t.Helper()
	return w.theirs.patch(w.t, w.uri+"/"+name, `{"spec":{`+spec+`}}`)
}

// alike fails the test unless both ways answer alike.
func alike(t *testing.T, ours, theirs *target, uri string) response {
	t.Helper()
	got, want := ours.get(t, uri), theirs.get(t, uri)
	if got.status != want.status || string(got.body) != string(want.body) {
		t.Errorf("GET %s from %s: %d %s\nwant %d %s", uri, ours.name, got.status, got.body, want.status, want.body)
	}
	if w := fmt.Sprint(got.header["Warning"]); w != fmt.Sprint(want.header["Warning"]) {
		t.Errorf("GET %s from %s: warnings %s, want %s", uri, ours.name, w, want.header["Warning"])
	}
	return got
}

// cached is alike, and also fails the test unless watchfan answered itself.
func cached(t *testing.T, ours, theirs *target, uri string) {
	t.Helper()
	if got := alike(t, ours, theirs, uri); !proxytest.FromCache(got.header) {
		t.Errorf("GET %s from %s was passed through", uri, ours.name)
	}
}

// warm waits until each way answers from a cache, so that later writes are in the cache's history.
func warm(t *testing.T, ways []*target, uris ...string) {
	t.Helper()
	for _, way := range ways {
		for _, uri := range uris {
			eventually(t, 10*time.Second, "an answer from "+way.name+"'s cache of "+uri, func() error {
				resp, err := way.try(http.MethodGet, uri+"?resourceVersion=0", nil, "")
				if err == nil && (resp.status != http.StatusOK || !proxytest.FromCache(resp.header)) {
					err = fmt.Errorf("%d: %s", resp.status, resp.body)
				}
				return err
			})
		}
	}
}

// TestSelectableFields: "custom resource: metadata.name, metadata.namespace + selectableFields;
// label = jsonPath without the leading dot; value = string form, "" if missing" (contract.md 3.8),
// live, from history, and in lists.
func TestSelectableFields(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	theirs := c.direct(t)
	ways := p.ways(t, c.token(t, "admin"))
	createNamespaces(t, theirs, "selectable")
	const group = "selectable.example.com"
	defineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true,
		fields: ".spec.c .spec.n .spec.b .spec.deep-er.x_1 .kind"})
	w := newWidgets(t, theirs, group, "v1", "selectable")
	rv := w.create("w0", `"c":"red","n":-7`)

	selectors := []string{"", "spec.c=red", "spec.c!=red", "spec.c=", "spec.n=9007199254740993", "spec.n=-7",
		"spec.n!=-7", "spec.n=", "spec.n=1",
		"spec.b=true", "spec.b=false", "spec.b=", "spec.deep-er.x_1=<&>", "spec.c=red,spec.b!=true",
		"spec.c=red,metadata.name=w1", "metadata.namespace=selectable,spec.c=blue", "kind=Widget,spec.c=red",
		"kind!=Widget"}
	uri := func(selector string, timeout int) string {
		return fmt.Sprintf("%s?watch=1&resourceVersion=%d&timeoutSeconds=%d&fieldSelector=%s", w.uri, rv,
			timeout, escape(selector))
	}
	warm(t, ways, w.uri)
	passed := p.admin(t).metric(t, "watchfan_passthrough_requests_total")

	type twins struct{ ours, theirs *recording }
	var pairs []twins
	for _, s := range selectors {
		direct := theirs.watch(t, uri(s, 15))
		for _, way := range ways {
			pairs = append(pairs, twins{way.watch(t, uri(s, 15)), direct})
		}
	}
	for _, step := range []struct{ name, spec string }{
		{"w1", `"c":"red"`}, {"w1", `"c":"blue","b":true`}, {"w1", `"c":"red"`},
		{"w1", `"c":"red","n":9007199254740993`}, {"w1", `"c":null,"n":1,"b":false`},
		{"w0", `"deep-er":{"x_1":"<&>"},"n":null`}, {"w0", `"deep-er":{"x_1":"é\"\\"},"c":"blue"`},
		{"w1", `"c":"red","deep-er":{},"b":null`},
	} {
		if resp := theirs.get(t, w.uri+"/"+step.name); resp.status == http.StatusNotFound {
			w.create(step.name, step.spec)
			continue
		}
		w.patch(step.name, step.spec)
	}
	theirs.remove(t, w.uri+"/w0")
	last := w.patch("w1", `"c":"blue"`)
	for i, s := range selectors {
		pairs = append(pairs, twins{ways[0].watch(t, uri(s, 5)), pairs[len(ways)*i].theirs})
	}
	events := 0
	for _, pair := range pairs {
		got := pair.ours.finish(t, 20*time.Second)
		pair.theirs.finish(t, 20*time.Second)
		if err := compare(pair.ours.objects(), pair.theirs.objects()); err != nil {
			t.Errorf("%s %s: %v", pair.ours.target.name, pair.ours.uri, err)
		}
		if !proxytest.FromCache(pair.ours.header) {
			t.Errorf("%s %s was passed through", pair.ours.target.name, pair.ours.uri)
		}
		events += len(got)
	}
	for _, s := range selectors {
		for _, way := range ways {
			cached(t, way, theirs, fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact&fieldSelector=%s",
				w.uri, last, escape(s)))
		}
	}
	if n := p.admin(t).metric(t, "watchfan_passthrough_requests_total"); n != passed {
		t.Errorf("%v requests were passed through", n-passed)
	}
	for _, s := range []string{"spec.d=1", "spec=1", "spec.deep-er=1", ".spec.c=red", "status.phase=x"} {
		resp := alike(t, ways[0], theirs, w.uri+"?resourceVersion=0&fieldSelector="+escape(s))
		if resp.status != http.StatusBadRequest {
			t.Errorf("%s: %d, want 400", s, resp.status)
		}
	}
	t.Logf("%d watches, %d events", len(pairs), events)
	if events < 100 {
		t.Errorf("%d events are too few to show anything", events)
	}
}

// TestSelectableFieldDropped: "CRD patched to drop the selectable field; again: items; then 400
// within seconds" (contract.md, L27).
func TestSelectableFieldDropped(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	theirs := c.direct(t)
	ways := p.ways(t, c.token(t, "admin"))
	createNamespaces(t, theirs, "dropped")
	const group = "dropped.example.com"
	defineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true, fields: ".spec.c .spec.n"})
	w := newWidgets(t, theirs, group, "v1", "dropped")
	warm(t, ways, w.uri)
	w.create("red", `"c":"red"`)
	rv := w.create("blue", `"c":"blue"`)
	list := fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact&fieldSelector=spec.c%%3Dred", w.uri, rv)
	var watches []*recording
	for _, way := range ways {
		cached(t, way, theirs, list)
		r := way.watch(t, w.uri+"?watch=1&resourceVersion=0&fieldSelector=spec.c%3Dred")
		if !proxytest.FromCache(r.header) {
			t.Errorf("%s: the watch was passed through", way.name)
		}
		r.wait(t, 1)
		watches = append(watches, r)
	}

	patched := time.Now()
	redefineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true, fields: ".spec.n"})
	list = w.uri + "?resourceVersion=0&fieldSelector=spec.c%3Dred"
	refused := func(d *target) time.Duration {
		eventually(t, 10*time.Second, "400 from "+d.name, func() error {
			resp, err := d.try(http.MethodGet, list, nil, "")
			if err == nil && resp.status != http.StatusBadRequest {
				err = fmt.Errorf("%d: %s", resp.status, resp.body)
			}
			return err
		})
		return time.Since(patched)
	}
	direct := refused(theirs)
	for _, way := range ways {
		took := refused(way)
		if took > apart(3*time.Second)+10*direct {
			t.Errorf("%s refused the selector %s after the change, kube-apiserver %s", way.name, took, direct)
		}
		t.Logf("%s: refused after %s (kube-apiserver %s)", way.name, took, direct)
	}
	for i, way := range ways {
		alike(t, way, theirs, list)
		alike(t, way, theirs, strings.Replace(list, "?", "?watch=1&", 1))
		watches[i].finish(t, 5*time.Second)
		t.Logf("%s: watch ended after %s", way.name, watches[i].ended.Sub(patched))
	}
	warm(t, ways, w.uri)
	rv = w.create("none", "")
	for _, way := range ways { // the remaining field is served again
		cached(t, way, theirs, fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact&fieldSelector=spec.n%%3D",
			w.uri, rv))
	}
}

// TestRedefined: "CRD patched while watching its resource: stream ends cleanly; re-watch works with
// the new schema" (contract.md, W32). A change that does not matter to clients ends no stream.
func TestRedefined(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	theirs := c.direct(t)
	ways := p.ways(t, c.token(t, "admin"))
	createNamespaces(t, theirs, "redefined")
	const group = "redefined.example.com"
	defineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true})
	w := newWidgets(t, theirs, group, "v1", "redefined")
	w.create("w1", "")
	rv := w.create("w2", `"c":"red"`)
	watchAll := func(query string) (all []*recording) {
		for _, d := range append(ways, theirs) {
			all = append(all, d.watch(t, w.uri+"?watch=1&"+query))
		}
		return all
	}

	watches := watchAll("allowWatchBookmarks=true")
	metadata := http.Header{"Accept": {"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}}
	short, err := ways[0].tryWatch(t.Context(), w.uri+"?watch=1", metadata)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range watches {
		r.wait(t, 3)
	}
	theirs.patch(t, definitionsPath+"/widgets."+group, `{"metadata":{"annotations":{"a":"b"}}}`)
	theirs.must(t, http.MethodPatch, definitionsPath+"/widgets."+group+"/status", "application/json-patch+json",
		`[{"op":"add","path":"/status/conditions/-","value":{"type":"Noted","status":"True",`+
			`"lastTransitionTime":"2026-01-01T00:00:00Z","reason":"R","message":"m"}}]`)
	time.Sleep(3 * time.Second)
	for _, r := range append(watches, short) {
		if !r.open() {
			t.Errorf("%s: the watch ended although nothing changed that matters", r.target.name)
		}
	}

	patched := time.Now()
	redefineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true, filler: "new"})
	late := w.create("w3", "") // the old watches may or may not bring it
	direct := watches[len(ways)]
	direct.finish(t, 10*time.Second)
	for _, r := range append(watches, short) {
		for _, e := range r.finish(t, 10*time.Second) {
			if e.typ == "ERROR" {
				t.Errorf("%s: %s", r.target.name, e.line)
			}
		}
		took, theirs := r.ended.Sub(patched), direct.ended.Sub(patched)
		t.Logf("%s: ended %s after the change", r.target.name, took)
		if took > apart(4*time.Second)+10*theirs {
			t.Errorf("%s: the watch ended %s after the change, kube-apiserver's %s", r.target.name, took, theirs)
		}
	}

	for _, r := range watchAll(fmt.Sprintf("resourceVersion=%d&timeoutSeconds=5", rv)) { // history began anew
		events := r.finish(t, 10*time.Second)
		if len(events) != 1 || events[0].typ != "ERROR" ||
			!strings.Contains(events[0].line, "too old resource version") {
			t.Errorf("%s: a watch from before the change brought\n%s", r.target.name, format(events))
		}
	}
	again := watchAll(
		fmt.Sprintf("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=%d"+
			"&allowWatchBookmarks=true&timeoutSeconds=15", late))
	for _, r := range again {
		r.wait(t, 4)
	}
	w.patch("w1", `"c":"blue"`)
	for i, r := range again {
		r.finish(t, 10*time.Second)
		direct := again[len(ways)].objects()
		if err := compare(r.objects(), direct); err != nil {
			t.Errorf("%s: %v", r.target.name, err)
		}
		if i < len(ways) && !proxytest.FromCache(r.header) {
			t.Errorf("%s: the watch was passed through", r.target.name)
		}
		for _, e := range r.objects() {
			if !strings.Contains(e.line, `"filler":"new"`) {
				t.Errorf("%s: %s in the old form", r.target.name, e.line)
			}
		}
	}
	now := w.patch("w2", `"c":"blue"`)
	for _, way := range ways {
		cached(t, way, theirs, fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", w.uri, now))
	}
}

var fillerIn = regexp.MustCompile(`"filler":"(\d+)"`)

// fillers returns the smallest and the largest spec.filler in some bytes.
func fillers(body string) (least, most int) {
	for i, m := range fillerIn.FindAllStringSubmatch(body, -1) {
		n, _ := strconv.Atoi(m[1])
		if i == 0 {
			least = n
		}
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// TestRedefinedOften: a client that has seen one form of a definition never sees an earlier one,
// and never objects of two forms at once, however often the definition changes.
func TestRedefinedOften(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	theirs := c.direct(t)
	ours := p.plain(t)
	createNamespaces(t, theirs, "often")
	const group, flips = "often.example.com", 6
	defineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true})
	w := newWidgets(t, theirs, group, "v1", "often")
	for i := range 20 {
		w.create(fmt.Sprintf("w%02d", i), "")
	}
	var clients sync.WaitGroup
	done := make(chan struct{})
	finish := sync.OnceFunc(func() {
		close(done)
		clients.Wait()
	})
	defer finish()
	running := func() bool {
		select {
		case <-done:
			return false
		case <-time.After(5 * time.Millisecond):
			return true
		}
	}
	var mu sync.Mutex
	answers := make(map[bool]int) // from the cache, or not
	check := func(what string, shown *int, header http.Header, body string) {
		least, most := fillers(body)
		mu.Lock()
		defer mu.Unlock()
		answers[proxytest.FromCache(header)]++
		if least != most || least < *shown {
			t.Errorf("%s (from cache: %t) is of forms %d to %d, after %d", what, proxytest.FromCache(header), least, most, *shown)
		}
		*shown = max(*shown, most)
	}
	for _, query := range []string{"resourceVersion=0", ""} {
		clients.Go(func() {
			for shown := 0; running(); {
				resp, err := ours.try(http.MethodGet, w.uri+"?"+query, nil, "")
				switch {
				case err != nil:
					t.Errorf("list: %v", err)
				case resp.status == http.StatusOK:
					check("list "+query, &shown, resp.header, string(resp.body))
				case resp.status != http.StatusTooManyRequests: // while a storage begins
					t.Errorf("list: %d %s", resp.status, resp.body)
				}
			}
		})
	}
	for range 3 {
		clients.Go(func() {
			for shown := 0; running(); {
				r, err := ours.tryWatch(t.Context(),
					w.uri+"?watch=1&resourceVersion=0&timeoutSeconds=30&allowWatchBookmarks=true", nil)
				if err != nil {
					t.Errorf("watch: %v", err)
					return
				}
				for r.open() && running() {
				}
				r.stop()
				if r.status != http.StatusOK {
					continue // 429, while a storage begins
				}
				var initial strings.Builder
				for _, e := range r.all() {
					if e.end {
						break
					}
					initial.WriteString(e.line)
				}
				if initial.Len() > 0 { // or the test has ended before them
					check("watch", &shown, r.header, initial.String())
				}
			}
		})
	}
	for i := 1; i <= flips; i++ {
		time.Sleep(3500 * time.Millisecond)
		redefineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true, filler: strconv.Itoa(i)})
	}
	eventually(t, 10*time.Second, "the last form from the cache", func() error {
		resp, err := ours.try(http.MethodGet, w.uri+"?resourceVersion=0", nil, "")
		if least, _ := fillers(string(resp.body)); err == nil && (least != flips || !proxytest.FromCache(resp.header)) {
			err = fmt.Errorf("from cache: %t, %d: %.300s", proxytest.FromCache(resp.header), resp.status, resp.body)
		}
		return err
	})
	finish()
	t.Logf("%d definitions, %d answers from the cache, %d passed through", flips, answers[true], answers[false])
	if answers[true] < 100 {
		t.Errorf("%d answers from the cache are too few to show anything", answers[true])
	}
}

// TestUndefined: "CRD deleted: DELETED events or clean end; then 404" (contract.md, W33). The
// definition can come back as another.
func TestUndefined(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	theirs := c.direct(t)
	ways := p.ways(t, c.token(t, "admin"))
	createNamespaces(t, theirs, "undefined")
	const group = "undefined.example.com"
	defineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true, fields: ".spec.c"})
	w := newWidgets(t, theirs, group, "v1", "undefined")
	w.create("w1", `"c":"red"`)
	w.create("w2", `"c":"blue"`)
	var watches []*recording
	for _, d := range append(ways, theirs) {
		r := d.watch(t, w.uri+"?watch=1&resourceVersion=0&fieldSelector=spec.c%3Dred")
		r.wait(t, 1)
		watches = append(watches, r)
	}
	deleted := time.Now()
	resp := theirs.do(t, http.MethodDelete, definitionsPath+"/widgets."+group, nil, "")
	if resp.status != http.StatusOK {
		t.Fatalf("delete definition: %d %s", resp.status, resp.body)
	}
	for i, r := range watches {
		r.finish(t, 20*time.Second)
		t.Logf("%s: ended %s after the deletion with %s", r.target.name, r.ended.Sub(deleted), types(r.all()))
		if i < len(ways) {
			if err := compare(r.objects(), watches[len(ways)].objects()); err != nil {
				t.Errorf("%s: %v", r.target.name, err)
			}
			if got := types(r.objects()); got != "ADDED DELETED" {
				t.Errorf("%s: the watch brought %s, want ADDED DELETED", r.target.name, got)
			}
		}
	}
	for _, way := range ways {
		for _, query := range []string{"", "?resourceVersion=0", "?watch=1", "?fieldSelector=spec.c%3Dred"} {
			if resp := alike(t, way, theirs, w.uri+query); resp.status != http.StatusNotFound {
				t.Errorf("%s: GET %s%s: %d, want 404", way.name, w.uri, query, resp.status)
			}
		}
	}

	defineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true, fields: ".spec.n"})
	warm(t, ways, w.uri)
	rv := w.create("w1", `"n":3`)
	for _, way := range ways {
		cached(t, way, theirs, fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact&fieldSelector=spec.n%%3D3",
			w.uri, rv))
		resp := alike(t, way, theirs, w.uri+"?resourceVersion=0&fieldSelector=spec.c%3Dred")
		if resp.status != http.StatusBadRequest {
			t.Errorf("%s: %d for a field of the earlier definition, want 400", way.name, resp.status)
		}
	}
}

// TestTwoVersions: "two versions of one CRD watched at once: same RVs, each in its version"
// (contract.md, W48), each with its own fields and warnings. A version that is no longer served is
// gone.
func TestTwoVersions(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	theirs := c.direct(t)
	ours := p.plain(t)
	createNamespaces(t, theirs, "versions")
	const group = "versions.example.com"
	v1 := widgetVersion{name: "v1", stored: true, fields: ".spec.c", deprecated: "use v2"}
	v2 := widgetVersion{name: "v2", fields: ".spec.n", filler: "two"}
	defineWidgets(t, theirs, group, v1, v2)
	one, two := newWidgets(t, theirs, group, "v1", "versions"), newWidgets(t, theirs, group, "v2", "versions")
	warm(t, []*target{ours}, one.uri, two.uri)
	rv := one.create("w0", `"c":"red","n":1`)
	selected := map[*widgets]string{one: "spec.c=red", two: "spec.n=1"}
	var pairs [][2]*recording
	for _, w := range []*widgets{one, two} {
		for _, s := range []string{"", selected[w]} {
			uri := fmt.Sprintf("%s?watch=1&resourceVersion=%d&timeoutSeconds=10&fieldSelector=%s", w.uri, rv, escape(s))
			pairs = append(pairs, [2]*recording{ours.watch(t, uri), theirs.watch(t, uri)})
		}
	}
	one.create("w1", `"c":"red"`)
	two.create("w2", `"n":1`)
	two.patch("w1", `"n":1,"c":"blue"`)
	last := one.patch("w2", `"c":"red","n":null`)
	var versions []string
	for _, pair := range pairs {
		pair[0].finish(t, 10*time.Second)
		pair[1].finish(t, 10*time.Second)
		if err := compare(pair[0].objects(), pair[1].objects()); err != nil {
			t.Errorf("%s: %v", pair[0].uri, err)
		}
		if !proxytest.FromCache(pair[0].header) {
			t.Errorf("%s was passed through", pair[0].uri)
		}
		if got, want := pair[0].header["Warning"], pair[1].header["Warning"]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: warnings %q, want %q", pair[0].uri, got, want)
		}
		var rvs []string
		for _, e := range pair[0].objects() {
			rvs = append(rvs, fmt.Sprint(e.rv))
		}
		versions = append(versions, strings.Join(rvs, " "))
	}
	if versions[0] != versions[2] || len(strings.Fields(versions[0])) != 4 {
		t.Errorf("resourceVersions of v1 %s, of v2 %s", versions[0], versions[2])
	}
	exact := fmt.Sprintf("?resourceVersion=%d&resourceVersionMatch=Exact&fieldSelector=", last)
	for _, w := range []*widgets{one, two} {
		cached(t, ours, theirs, w.uri+exact+escape(selected[w]))
	}
	for w, s := range map[*widgets]string{one: selected[two], two: selected[one]} {
		if resp := alike(t, ours, theirs, w.uri+exact+escape(s)); resp.status != http.StatusBadRequest {
			t.Errorf("%s selected by a field of the other version: %d, want 400", w.uri, resp.status)
		}
	}

	v1.deprecated, v2.deprecated = "", "use v3"
	redefineWidgets(t, theirs, group, v1, v2)
	for _, w := range []*widgets{one, two} {
		eventually(t, 5*time.Second, "the other warnings of "+w.gv, func() error {
			got, want := ours.get(t, w.uri+"?resourceVersion=0").header["Warning"],
				theirs.get(t, w.uri+"?resourceVersion=0").header["Warning"]
			if deprecated := w == two; fmt.Sprint(got) != fmt.Sprint(want) || deprecated != (len(want) > 0) {
				return fmt.Errorf("%q, want %q", got, want)
			}
			return nil
		})
	}
	warm(t, []*target{ours}, one.uri, two.uri)
	last = one.create("w3", "")
	for _, w := range []*widgets{one, two} {
		cached(t, ours, theirs, fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", w.uri, last))
	}

	open := ours.watch(t, two.uri+"?watch=1&resourceVersion=0")
	v2.hidden = true
	redefineWidgets(t, theirs, group, v1, v2)
	open.finish(t, 10*time.Second)
	if resp := alike(t, ours, theirs, two.uri+"?resourceVersion=0"); resp.status != http.StatusNotFound {
		t.Errorf("GET of a version that is no longer served: %d, want 404", resp.status)
	}
	warm(t, []*target{ours}, one.uri)
}

// TestDefinitionsForbidden: a watchfan that may not read definitions serves custom resources, but
// passes through reads that select by their fields.
func TestDefinitionsForbidden(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t)
	theirs := c.direct(t)
	createNamespaces(t, theirs, "forbidden")
	const group = "forbidden.example.com"
	defineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true, fields: ".spec.c"})
	theirs.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"metadata":{"name":"forbidden-widgets"},"rules":[{"apiGroups":["`+group+`"],"resources":["*"],"verbs":["*"]},
{"apiGroups":["apiregistration.k8s.io"],"resources":["apiservices"],"verbs":["list","watch"]}]}`)
	theirs.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"metadata":{"name":"forbidden-widgets"},
"subjects":[{"kind":"User","name":"dev-user","apiGroup":"rbac.authorization.k8s.io"}],
"roleRef":{"kind":"ClusterRole","name":"forbidden-widgets","apiGroup":"rbac.authorization.k8s.io"}}`)
	w := newWidgets(t, theirs, group, "v1", "forbidden")
	rv := w.create("red", `"c":"red"`)
	dir := t.TempDir()
	p, err := startWatchfan(binary(t, "WATCHFAN_BIN", "watchfan"), dir, c.Ready.Kubeconfigs["user"])
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}()
	ours := p.plain(t)
	cached(t, ours, theirs, fmt.Sprintf("%s?resourceVersion=%d", w.uri, rv))
	for range 3 {
		resp := alike(t, ours, theirs, fmt.Sprintf("%s?resourceVersion=%d&fieldSelector=spec.c%%3Dred", w.uri, rv))
		if resp.status != http.StatusOK || proxytest.FromCache(resp.header) {
			t.Errorf("selected by a field: %d, from cache: %t", resp.status, proxytest.FromCache(resp.header))
		}
		time.Sleep(200 * time.Millisecond)
	}
	log, err := os.ReadFile(filepath.Join(dir, "watchfan.log"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), "Served custom resources without their definitions"); n != 1 {
		t.Errorf("told %d times that definitions can't be read, want once", n)
	}
}
