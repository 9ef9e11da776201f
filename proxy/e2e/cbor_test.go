//testlint:allow timeout whole answers to watches are compared

package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

const (
	cborType     = "application/cbor"
	cborPartial  = cborType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	cborPartials = cborType + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	// preferCBOR is what client-go's dynamic client sends.
	preferCBOR = "application/json;q=0.9,application/cbor;q=1"
)

// cborItems returns the items of a sequence as clients of Kubernetes read them.
func cborItems(sequence []byte) (items []any, err error) {
	for len(sequence) > 0 {
		var item cbor.RawMessage
		if sequence, err = cbor.UnmarshalFirst(sequence, &item); err != nil {
			return items, err
		}
		var v any
		if err := direct.Unmarshal(item, &v); err != nil {
			return items, err
		}
		items = append(items, v)
	}
	return items, nil
}

// at returns the value at a path in v, nil if there is none.
func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// normalCBOR returns a list, an object or a watch with its maps in order and without what may
// differ between two answers.
func normalCBOR(b []byte) []byte {
	items, err := cborItems(b)
	if err != nil {
		return fmt.Appendf(nil, "%v: %x", err, b)
	}
	var normal [][]byte
	ended := false
	for _, v := range items {
		var metadata map[string]any
		switch {
		case at(v, "type") == "BOOKMARK":
			metadata, _ = at(v, "object", "metadata").(map[string]any)
		case at(v, "kind") != nil && strings.HasSuffix(at(v, "kind").(string), "List"):
			metadata, _ = at(v, "metadata").(map[string]any)
		}
		if metadata != nil {
			metadata["resourceVersion"] = "RV"
		}
		if token, _ := metadata["continue"].(string); token != "" {
			var fields map[string]any
			raw, _ := base64.RawURLEncoding.DecodeString(token)
			if json.Unmarshal(raw, &fields) == nil {
				metadata["continue"] = fmt.Sprint(fields["v"], fields["start"])
			}
		}
		if m, ok := v.(map[string]any); ok && m["kind"] == "Status" {
			m["message"] = currentRV.ReplaceAllString(fmt.Sprint(m["message"]), "current: N")
		}
		line, err := direct.Marshal(v)
		if err != nil {
			line = []byte(err.Error())
		}
		end := at(v, "type") == "BOOKMARK"
		if !end || !ended && at(v, "object", "metadata", "annotations") != nil { // as in normalLines
			normal = append(normal, line)
			ended = ended || end
		}
	}
	return bytes.Join(normal, []byte("\n"))
}

// cborCluster is a cluster whose kube-apiserver offers CBOR, with objects of several kinds in it.
func cborCluster(t *testing.T) *cluster {
	t.Helper()
	c := privateCluster(t, append([]string{"--apiserver-arg", "feature-gates=CBORServingAndStorage=true"},
		endWatches...)...)
	d := c.direct(t)
	createNamespaces(t, d, "a", "b")
	for _, ns := range []string{"b", "a"} {
		for _, name := range []string{"y", "x"} {
			d.create(t, "/api/v1/namespaces/"+ns+"/configmaps",
				fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"l":%q}},`+
					`"data":{"k":"<&>\u2028é😀","e":""},"binaryData":{"b":"AAEC/w=="}}`, name, name))
		}
	}
	d.create(t, "/api/v1/namespaces/b/configmaps",
		fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"k":%q}}`,
			strings.Repeat("x", 200_000)))
	d.create(t, "/api/v1/namespaces/a/pods", podBody("p", "n1"))
	createCRD(t, d, "ex.io", "Foo", "Namespaced")
	for i, color := range []string{"red", "blue"} {
		d.create(t, "/apis/ex.io/v1/namespaces/a/foos",
			fmt.Sprintf(`{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"f%d"},"spec":{"c":%q,"n":1.0,`+
				`"big":9007199254740993,"deep":[{"f":1.5,"z":null}]}}`, i, color))
	}
	return c
}

// TestCBOR: where kube-apiserver offers CBOR (feature gate CBORServingAndStorage), watchfan serves
// it like JSON and protobuf.
func TestCBOR(t *testing.T) {
	parallel(t)
	c := cborCluster(t)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	t.Run("reads", func(t *testing.T) { testCBORReads(t, c, p) })
	t.Run("watches", func(t *testing.T) { testCBORWatches(t, c, p) })
	t.Run("informers", func(t *testing.T) { testCBORInformers(t, c, p) })
	if n := p.admin(t).metric(t, "watchfan_passthrough_requests_total", `verb="watch"`); n != 0 {
		t.Errorf("%v watches were passed through", n)
	}
	t.Run("expired", func(t *testing.T) {
		// A restarted kube-apiserver remembers nothing, and neither does another watchfan.
		c.restart(t)
		row{uri: "/api/v1/configmaps?watch=1&resourceVersion=1&timeoutSeconds=5", header: accept(cborType)}.
			check(t, c.direct(t), privateWatchfan(t, c).plain(t))
	})
}

func testCBORReads(t *testing.T, c *cluster, p *watchfan) {
	direct := c.direct(t)
	const (
		all  = "/api/v1/configmaps"
		inA  = "/api/v1/namespaces/a/configmaps"
		foos = "/apis/ex.io/v1/foos"
	)
	for _, uri := range []string{all, foos} { // a lane may know no older resourceVersions than its own
		p.plain(t).warmAs(t, uri, cborType, cborPartials)
	}
	now := fmt.Sprint(direct.version(t, all))
	token := func(page int) string {
		var list struct{ Metadata struct{ Continue string } }
		if err := json.Unmarshal(direct.get(t, fmt.Sprintf("%s?limit=%d", all, page)).body, &list); err != nil ||
			list.Metadata.Continue == "" {
			t.Fatalf("no page: %v", err)
		}
		return list.Metadata.Continue
	}(2)
	// The caches hold a write that is newer than the token. A proof that the objects have not changed would tell them
	// one newer resourceVersion, and not those before it.
	p.plain(t).awaitWrite(t, all, makeConfigMap(t, direct, "a", "at-least", ""), cborType, cborPartials)
	var rows []row
	add := func(accepts []string, uris ...string) {
		for _, a := range accepts {
			for _, uri := range uris {
				rows = append(rows, row{uri: uri, header: accept(a), cached: true})
			}
		}
	}
	lists := []string{all + "?resourceVersion=0", inA + "?resourceVersion=0", inA + "?resourceVersion=" + now,
		all + "?resourceVersion=" + now + "&resourceVersionMatch=Exact",
		all + "?limit=2&resourceVersion=" + now, all + "?limit=1&resourceVersion=0",
		all + "?continue=" + token, all + "?limit=1&continue=" + token,
		all + "?labelSelector=l%3Dx&resourceVersion=0", all + "?labelSelector=l%3Dnone&resourceVersion=0",
		all + "?fieldSelector=metadata.name%3Dx&resourceVersion=0",
		"/api/v1/pods?resourceVersion=0", "/api/v1/nodes?resourceVersion=0",
		foos + "?resourceVersion=0", foos + "?limit=1&resourceVersion=" + now,
		foos + "?labelSelector=l%3Dnone&resourceVersion=0"}
	add([]string{cborPartials, cborPartials + ",application/json"}, lists...)
	lists = append(lists, all, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&resourceVersion=0",
		"/api/v1/pods?fieldSelector=spec.hostNetwork%3Dtrue&resourceVersion=0",
		foos+"?fieldSelector=spec.c%3Dred&resourceVersion=0", foos+"?fieldSelector=spec.c%3Dblue&resourceVersion=0")
	add([]string{cborType, cborType + ";pretty=1", preferCBOR}, lists...)
	add([]string{cborType, preferCBOR, cborPartial}, inA+"/x?resourceVersion=0",
		foos[:len(foos)-4]+"namespaces/a/foos/f0?resourceVersion=0", "/api/v1/namespaces/a?resourceVersion=0")
	// Custom resources have no protobuf, and then CBOR is next.
	add([]string{protoType + "," + cborType, cborType + ",*/*", "application/json;q=0.1," + cborType + ";q=0.5",
		cborType + ";q=0.5,application/json"},
		all+"?resourceVersion=0", foos+"?resourceVersion=0")
	for _, r := range slices.Clone(rows) {
		r.header = r.header.Clone()
		r.header.Set("Accept-Encoding", "gzip")
		rows = append(rows, r)
	}
	checkAll(t, rows, direct, p.ways(t, c.token(t, "admin"))...)
	t.Logf("%d requests, three ways each", len(rows))

	rows = nil // reads that kube-apiserver answers
	add([]string{cborType, preferCBOR}, inA+"/none", all+"?resourceVersion=x", all+"?limit=x", "/api/v1/nothing",
		foos+"/f0", inA, inA+"/x")
	add([]string{cborType + ";as=Table;g=meta.k8s.io;v=v1", cborType + "-seq", cborPartial,
		"application/yaml," + cborType}, all)
	for i := range rows {
		rows[i].cached = false
	}
	checkAll(t, rows, direct, p.plain(t))
}

// watchCBOR begins a watch. changes returns what it brings up to an object with the label marker, without periodic
// bookmarks.
func (d *target) watchCBOR(t *testing.T, uri, accepts string) (changes func() []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), steady.Patience)
	t.Cleanup(cancel)
	resp, err := d.open(ctx, http.MethodGet, uri, accept(accepts), "")
	if err != nil {
		t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "application/cbor-seq" {
		t.Fatalf("%s %s: %d, Content-Type %q", d.name, uri, resp.StatusCode, kind)
	}
	var lines []string
	failed := make(chan error)
	go func() {
		defer resp.Body.Close()
		for in := cbor.NewDecoder(resp.Body); ; {
			var item cbor.RawMessage
			var event any
			err := in.Decode(&item)
			if err == nil {
				err = direct.Unmarshal(item, &event)
			}
			if at(event, "type") == "BOOKMARK" {
				if at(event, "object", "metadata", "annotations", "k8s.io/initial-events-end") == nil {
					continue
				}
				at(event, "object", "metadata").(map[string]any)["resourceVersion"] = "RV"
			}
			lines = append(lines, fmt.Sprintf("%#v", event)) // which has the entries of maps in order
			if err != nil || at(event, "object", "metadata", "labels", "marker") != nil {
				failed <- err
				return
			}
		}
	}()
	return func() []string {
		t.Helper()
		if err := <-failed; err != nil {
			t.Fatalf("%s %s: %v", d.name, uri, err)
		}
		return lines
	}
}

func testCBORWatches(t *testing.T, c *cluster, p *watchfan) {
	direct := c.direct(t)
	now := direct.version(t, "/api/v1/configmaps")
	var uris []string
	for _, start := range []string{"", "&resourceVersion=0", fmt.Sprint("&resourceVersion=", now),
		"&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
		"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
		"&resourceVersion=0&allowWatchBookmarks=1"} {
		for _, what := range []string{"/api/v1/configmaps?watch=1",
			"/api/v1/namespaces/a/configmaps?watch=1&labelSelector=l%3Dx",
			"/api/v1/configmaps?watch=1&fieldSelector=metadata.name%3Dlive",
			"/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn2",
			"/apis/ex.io/v1/foos?watch=1&fieldSelector=spec.c%3Dred", "/apis/ex.io/v1/foos?watch=1",
			"/api/v1/watch/configmaps?"} {
			if !strings.Contains(what, "/v1/watch/") || !strings.Contains(start, "sendInitial") {
				uris = append(uris, what+start)
			}
		}
	}
	var ours, theirs []func() []string
	way := p.plain(t)
	for i, uri := range uris {
		a := []string{cborType, preferCBOR, cborPartial}[i%3]
		if strings.Contains(uri, "spec.") {
			a = cborType // metadata has no such fields
		}
		ours, theirs = append(ours, way.watchCBOR(t, uri, a)), append(theirs, direct.watchCBOR(t, uri, a))
	}
	for _, ns := range []string{"a", "b"} {
		one := "/api/v1/namespaces/" + ns + "/configmaps/live"
		direct.create(t, one[:len(one)-5],
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"live"},"binaryData":{"b":"AAEC/w=="}}`)
		direct.patch(t, one, `{"metadata":{"labels":{"l":"x"}}}`)
		direct.patch(t, one, `{"data":{"k":"v"}}`)
		direct.patch(t, one, `{"metadata":{"labels":{"l":"y"}}}`)
		direct.patch(t, one, `{"metadata":{"labels":{"l":"x"}}}`)
		direct.remove(t, one)
		foo := "/apis/ex.io/v1/namespaces/" + ns + "/foos/live"
		direct.create(t, foo[:len(foo)-5],
			`{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"live"},"spec":{"c":"red","n":2.0}}`)
		direct.patch(t, foo, `{"spec":{"c":"blue","more":{"a":[1,2.5,null,true,"s"]}}}`)
		direct.patch(t, foo, `{"spec":{"c":"red"}}`)
		direct.remove(t, foo)
		direct.create(t, "/api/v1/namespaces/"+ns+"/pods", podBody("live", "n2"))
		direct.remove(t, "/api/v1/namespaces/"+ns+"/pods/live")
	}
	const marked = `"metadata":{"name":%q,"labels":{"l":"x","marker":"1"}}`
	direct.create(t, "/api/v1/namespaces/a/configmaps", `{"apiVersion":"v1","kind":"ConfigMap",`+fmt.Sprintf(marked, "live")+`}`)
	direct.create(t, "/api/v1/namespaces/a/pods",
		strings.Replace(podBody("marker", "n2"), `"l":"1"`, `"l":"1","marker":"1"`, 1))
	direct.create(t, "/apis/ex.io/v1/namespaces/a/foos",
		`{"apiVersion":"ex.io/v1","kind":"Foo",`+fmt.Sprintf(marked, "marker")+`,"spec":{"c":"red"}}`)
	for i, uri := range uris {
		if err := same(ours[i](), theirs[i]()); err != nil {
			t.Errorf("%s: %.3000s", uri, err.Error())
		}
	}
}

// testCBORInformers: informers of the dynamic client, which prefers CBOR, hold what those straight at kube-apiserver
// hold in JSON. Each is a process of its own, because client-go reads its feature gates from the environment once.
func testCBORInformers(t *testing.T, c *cluster, p *watchfan) {
	direct, admin := c.direct(t), p.admin(t)
	watches := func() float64 {
		return admin.metric(t, "watchfan_cached_requests_total", `verb="watch"`, `encoding="cbor"`)
	}
	before := watches()
	run := func(name string, cbor bool, server ...string) *programOutput {
		cmd := exec.CommandContext(t.Context(), proxytest.InformerPrograms(t)["v0.37"], append([]string{"--client", "dynamic",
			"--resources", "configmaps,pods,foos.ex.io", "--until", lastObject, "--timeout", steady.Patience.String()}, server...)...)
		cmd.Env = append(os.Environ(), fmt.Sprintf("KUBE_FEATURE_ClientsAllowCBOR=%t", cbor),
			fmt.Sprintf("KUBE_FEATURE_ClientsPreferCBOR=%t", cbor))
		out := startProgram(t, name, cmd)
		out.until(t, "synced")
		return out
	}
	processes := []*programOutput{run("informers", true, "--server", "http://"+p.ports.Insecure),
		run("straight", false, "--kubeconfig", c.Ready.Kubeconfigs["admin"])}
	const foos = "/apis/ex.io/v1/namespaces/b/foos"
	for i := range 20 {
		direct.create(t, foos, fmt.Sprintf(`{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"made-%d","labels":{"i":"%[1]d"}},`+
			`"spec":{"c":"red","n":1.0,"big":9007199254740993,"deep":[{"f":1.5,"z":null}]}}`, i))
	}
	for i := range 10 {
		direct.remove(t, fmt.Sprintf("%s/made-%d", foos, i))
	}
	direct.create(t, foos, `{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"`+lastObject+`"}}`)
	direct.create(t, "/api/v1/namespaces/b/pods", podBody(lastObject, ""))
	makeConfigMap(t, direct, "b", lastObject, "")
	var reports [2]proxytest.InformerReport
	for i, process := range processes {
		if err := json.Unmarshal([]byte(process.until(t, "{")[0]), &reports[i]); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range reports[1].Resources {
		if got := reports[0].Resources[name].Objects; !maps.Equal(got, want.Objects) || len(got) < 3 {
			t.Errorf("the informer holds the %s\n%v, want\n%v", name, got, want.Objects)
		}
	}
	if n := watches() - before; n != float64(len(reports[1].Resources)) {
		t.Errorf("the informers have %v watches in CBOR", n)
	}
}

// TestCBORNotOffered: where kube-apiserver does not offer CBOR, a client that asks for it gets its
// next choice from the cache, or 406.
func TestCBORNotOffered(t *testing.T) {
	parallel(t)
	c, p := quietCluster(t)
	d, way := c.direct(t), p.plain(t)
	const configMaps, foos = "/api/v1/namespaces/a/configmaps", "/apis/ex.io/v1/namespaces/a/foos"
	// Reads and short watches pass through or are refused while their caches are filled.
	way.warmAs(t, configMaps, jsonType, protoType, partials)
	way.warmAs(t, foos, jsonType, partials)
	r0 := d.version(t, configMaps)
	var rows []row
	for _, uri := range []string{configMaps, foos} {
		list, watch := uri+"?resourceVersion=0", fmt.Sprint(uri, "?watch=1&timeoutSeconds=5&resourceVersion=", r0)
		for _, a := range []string{cborType, cborPartials, cborType + "," + cborPartial} {
			rows = append(rows, row{uri: list, header: accept(a)}, row{uri: watch, header: accept(a)},
				row{uri: uri + "/none?resourceVersion=0", header: accept(a)})
		}
		for _, a := range []string{preferCBOR, cborType + ",application/json", cborType + ";q=1,*/*;q=0.1", cborType + "," + protoType + ",application/json"} {
			rows = append(rows, row{uri: list, header: accept(a), cached: true}, row{uri: watch, header: accept(a), cached: true})
		}
	}
	checkAll(t, rows, d, way)
}
