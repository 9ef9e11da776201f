package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
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
	steady.Until(t, "widgets."+group, func() error {
		resp, err := d.look("/apis/"+group+"/"+versions[0].name+"/widgets?watch=1", nil)
		if err == nil && resp.status != http.StatusOK {
			err = fmt.Errorf("%d", resp.status)
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

// warm waits until each way answers from a cache, so that later writes are in the cache's history. While a
// cache is filled, reads may pass through.
func warm(t testing.TB, ways []*target, uris ...string) {
	t.Helper()
	for _, way := range ways {
		for _, uri := range uris {
			way.warmAs(t, uri, jsonType)
		}
	}
}

// warmAs waits until a list is answered from the cache of each form.
func (d *target) warmAs(t testing.TB, uri string, forms ...string) {
	t.Helper()
	for _, form := range forms {
		steady.Until(t, fmt.Sprintf("answer from %s's cache of %s as %s", d.name, uri, form), func() error {
			resp, err := d.look(uri+"?resourceVersion=0", accept(form))
			if err == nil && (resp.status != http.StatusOK || !proxytest.FromCache(resp.header)) {
				err = fmt.Errorf("%d", resp.status)
			}
			return err
		})
	}
}

// awaitWrite waits until the cache of each form of a collection holds the write that made resourceVersion rv.
// Before that, a list as of exactly rv may pass through.
func (d *target) awaitWrite(t testing.TB, uri string, rv uint64, forms ...string) {
	t.Helper()
	for _, form := range forms {
		version := strconv.FormatUint(rv, 10)
		written := `"` + version + `"`
		if strings.HasPrefix(form, protoType) { // it is the sixth field of ObjectMeta
			written = string(protowire.AppendString(protowire.AppendTag(nil, 6, protowire.BytesType), version))
		}
		steady.Until(t, fmt.Sprintf("write %d in %s's cache of %s as %s", rv, d.name, uri, form), func() error {
			resp, err := d.try(http.MethodGet, uri+"?resourceVersion=0", accept(form), "")
			if err == nil && (!proxytest.FromCache(resp.header) || !strings.Contains(string(resp.body), written)) {
				err = fmt.Errorf("%d, and it is not there", resp.status)
			}
			return err
		})
	}
}

// TestSelectableFields: "custom resource: metadata.name, metadata.namespace + selectableFields;
// label = jsonPath without the leading dot; value = string form, "" if missing" (contract.md 3.8),
// live, from history, and in lists.
func TestSelectableFields(t *testing.T) {
	parallel(t)
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
	uri := func(selector string) string {
		return fmt.Sprintf("%s?watch=1&resourceVersion=%d&fieldSelector=%s", w.uri, rv, url.QueryEscape(selector))
	}
	warm(t, ways, w.uri)
	passed := p.admin(t).metric(t, "watchfan_passthrough_requests_total")

	watches, direct := make(map[string][]*recording), make(map[string]*recording)
	for _, s := range selectors {
		direct[s] = theirs.follow(t, uri(s))
		for _, way := range ways {
			watches[s] = append(watches[s], way.watch(t, uri(s)))
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
	before := w.patch("w1", `"c":"blue"`)
	for i, spec := range []string{`"c":"red","n":-7,"b":true,"deep-er":{"x_1":"<&>"}`, `"c":"blue","n":1,"b":false`, ``,
		`"c":"red","n":9007199254740993`} { // each selector but the last gets one more event
		w.create(fmt.Sprintf("marker%d", i), spec)
	}
	last := w.patch("w1", `"c":"red"`)
	events := 0
	for _, s := range selectors {
		late := ways[0].watch(t, uri(s)) // from history
		if s == "kind!=Widget" {
			for _, r := range append(watches[s], direct[s], late) {
				if got := r.all(); len(got) > 0 {
					t.Errorf("%s %s brought %s", r.target.name, r.uri, format(got))
				}
			}
			continue
		}
		marker := direct[s].behind(t, before).rv
		want := withoutBookmarks(direct[s].until(t, marker))
		for _, r := range append(watches[s], late) {
			got := withoutBookmarks(r.until(t, marker))
			if err := compare(got, want); err != nil {
				t.Errorf("%s %s: %v", r.target.name, r.uri, err)
			}
			if !proxytest.FromCache(r.header) {
				t.Errorf("%s %s was passed through", r.target.name, r.uri)
			}
			events += len(got)
		}
	}
	for _, s := range selectors {
		for _, way := range ways {
			cached(t, way, theirs, fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact&fieldSelector=%s",
				w.uri, last, url.QueryEscape(s)))
		}
	}
	if n := p.admin(t).metric(t, "watchfan_passthrough_requests_total"); n != passed {
		t.Errorf("%v requests were passed through", n-passed)
	}
	for _, s := range []string{"spec.d=1", "spec=1", "spec.deep-er=1", ".spec.c=red", "status.phase=x"} {
		resp := alike(t, ways[0], theirs, w.uri+"?resourceVersion=0&fieldSelector="+url.QueryEscape(s))
		if resp.status != http.StatusBadRequest {
			t.Errorf("%s: %d, want 400", s, resp.status)
		}
	}
	if events < 100 {
		t.Errorf("%d events are too few to show anything", events)
	}

	// "CRD patched to drop the selectable field; again: items; then 400" (contract.md, L27).
	redefineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true, fields: ".spec.n"})
	dropped := w.uri + "?resourceVersion=0&fieldSelector=spec.c%3Dred"
	for _, way := range append(ways, theirs) {
		steady.Until(t, "refusal of the field by "+way.name, func() error {
			resp, err := way.try(http.MethodGet, dropped, nil, "")
			if err == nil && resp.status != http.StatusBadRequest {
				err = fmt.Errorf("%d: %s", resp.status, resp.body)
			}
			return err
		})
	}
	warm(t, ways, w.uri)
	last = w.create("none", "")
	ways[0].awaitWrite(t, w.uri, last, jsonType)
	for _, way := range ways { // the remaining field is served again
		alike(t, way, theirs, dropped)
		alike(t, way, theirs, strings.Replace(dropped, "?", "?watch=1&", 1))
		cached(t, way, theirs, fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact&fieldSelector=spec.n%%3D",
			w.uri, last))
	}
}

// TestRedefined: "CRD patched while watching its resource: stream ends cleanly; re-watch works with
// the new schema" (contract.md, W32). A change that does not matter to clients ends no stream.
func TestRedefined(t *testing.T) {
	parallel(t)
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
	// watchfan handles definitions in their order, so it has handled that change when it knows the fields of
	// another definition.
	const fence = "fence.example.com"
	defineWidgets(t, theirs, fence, widgetVersion{name: "v1", stored: true, fields: ".spec.c"})
	for _, way := range ways {
		steady.Until(t, "list by a field of another definition at "+way.name, func() error {
			resp, err := way.try(http.MethodGet, "/apis/"+fence+"/v1/widgets?resourceVersion=0&fieldSelector=spec.c%3Dred", nil, "")
			if err == nil && (resp.status != http.StatusOK || !proxytest.FromCache(resp.header)) {
				err = fmt.Errorf("%d: %s", resp.status, resp.body)
			}
			return err
		})
	}
	still := w.create("still", "")
	for _, r := range append(watches, short) {
		r.await(t, "event behind a change that does not matter", func(events []event) bool {
			return len(events) > 0 && events[len(events)-1].rv >= still
		})
	}
	theirs.remove(t, w.uri+"/still")

	redefineWidgets(t, theirs, group, widgetVersion{name: "v1", stored: true, filler: "new"})
	late := w.create("w3", "") // the old watches may or may not bring it
	for _, r := range append(watches, short) {
		for _, e := range r.finish(t) {
			if e.typ == "ERROR" {
				t.Errorf("%s: %s", r.target.name, e.line)
			}
		}
	}

	for _, r := range watchAll(fmt.Sprintf("resourceVersion=%d", rv)) { // history began anew
		events := r.finish(t)
		if len(events) != 1 || events[0].typ != "ERROR" ||
			!strings.Contains(events[0].line, "too old resource version") {
			t.Errorf("%s: a watch from before the change brought\n%s", r.target.name, format(events))
		}
	}
	again := watchAll(
		fmt.Sprintf("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=%d"+
			"&allowWatchBookmarks=true", late))
	for _, r := range again {
		r.wait(t, 4)
	}
	w.patch("w1", `"c":"blue"`)
	now := w.patch("w2", `"c":"blue"`)
	want := withoutBookmarks(again[len(ways)].until(t, now))
	for i, r := range again[:len(ways)] {
		got := withoutBookmarks(r.until(t, now))
		if err := compare(got, want); err != nil {
			t.Errorf("%s: %v", r.target.name, err)
		}
		if !proxytest.FromCache(r.header) {
			t.Errorf("%s: the watch was passed through", r.target.name)
		}
		for _, e := range got {
			if !strings.Contains(e.line, `"filler":"new"`) {
				t.Errorf("%s: %s in the old form", r.target.name, e.line)
			}
		}
		cached(t, ways[i], theirs, fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", w.uri, now))
	}
}

// TestTwoVersions: "two versions of one CRD watched at once: same RVs, each in its version"
// (contract.md, W48), each with its own fields and warnings. A version that is no longer served is
// gone.
func TestTwoVersions(t *testing.T) {
	parallel(t)
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
			uri := fmt.Sprintf("%s?watch=1&resourceVersion=%d&fieldSelector=%s", w.uri, rv, url.QueryEscape(s))
			pairs = append(pairs, [2]*recording{ours.watch(t, uri), theirs.follow(t, uri)})
		}
	}
	one.create("w1", `"c":"red"`)
	two.create("w2", `"n":1`)
	two.patch("w1", `"n":1,"c":"blue"`)
	one.patch("w2", `"c":"red","n":null`)
	last := one.create("marker", `"c":"red","n":1`)
	var versions []string
	for _, pair := range pairs {
		got := equalTwins(t, pair, last)
		if !proxytest.FromCache(pair[0].header) {
			t.Errorf("%s was passed through", pair[0].uri)
		}
		if got, want := pair[0].header["Warning"], pair[1].header["Warning"]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: warnings %q, want %q", pair[0].uri, got, want)
		}
		var rvs []string
		for _, e := range got {
			rvs = append(rvs, fmt.Sprint(e.rv))
		}
		versions = append(versions, strings.Join(rvs, " "))
	}
	if versions[0] != versions[2] || len(strings.Fields(versions[0])) != 5 {
		t.Errorf("resourceVersions of v1 %s, of v2 %s", versions[0], versions[2])
	}
	exact := fmt.Sprintf("?resourceVersion=%d&resourceVersionMatch=Exact&fieldSelector=", last)
	for _, w := range []*widgets{one, two} {
		cached(t, ours, theirs, w.uri+exact+url.QueryEscape(selected[w]))
	}
	for w, s := range map[*widgets]string{one: selected[two], two: selected[one]} {
		if resp := alike(t, ours, theirs, w.uri+exact+url.QueryEscape(s)); resp.status != http.StatusBadRequest {
			t.Errorf("%s selected by a field of the other version: %d, want 400", w.uri, resp.status)
		}
	}

	v1.deprecated, v2.deprecated = "", "use v3"
	redefineWidgets(t, theirs, group, v1, v2)
	for _, w := range []*widgets{one, two} {
		steady.Until(t, "other warnings of "+w.gv, func() error {
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
		ours.awaitWrite(t, w.uri, last, jsonType)
		cached(t, ours, theirs, fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", w.uri, last))
	}

	open := ours.watch(t, two.uri+"?watch=1&resourceVersion=0")
	v2.hidden = true
	redefineWidgets(t, theirs, group, v1, v2)
	open.finish(t)
	if resp := alike(t, ours, theirs, two.uri+"?resourceVersion=0"); resp.status != http.StatusNotFound {
		t.Errorf("GET of a version that is no longer served: %d, want 404", resp.status)
	}
	warm(t, []*target{ours}, one.uri)
}
