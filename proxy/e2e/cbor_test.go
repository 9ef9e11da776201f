//testlint:allow timeout whole answers to watches are compared

package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

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
	if os.Getenv("E2E_CBOR_WATCHFAN") != "" {
		cborInformerProcess(t)
		return
	}
	parallel(t)
	c := cborCluster(t)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	t.Run("reads", func(t *testing.T) { testCBORReads(t, c, p) })
	t.Run("watches", func(t *testing.T) { testCBORWatches(t, c, p) })
	t.Run("bookmarks", func(t *testing.T) { testCBORBookmarks(t, c, p) })
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
	atLeast(t, p, direct, all, cborType, cborPartials)
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

// cborWatch is a watch.
type cborWatch struct {
	resp   *http.Response
	cancel func()
	raw    []byte // of the events
	events []any
}

func openCBORWatch(t *testing.T, d *target, uri, accepts string) *cborWatch {
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
	return &cborWatch{resp: resp, cancel: cancel}
}

// until reads the watch up to an object with a label, or to its end if label is "".
func (w *cborWatch) until(label string) error {
	defer w.resp.Body.Close()
	defer w.cancel()
	for in := cbor.NewDecoder(w.resp.Body); ; {
		var item cbor.RawMessage
		if err := in.Decode(&item); err == io.EOF && label == "" {
			return nil
		} else if err != nil {
			return err
		}
		var event any
		if err := direct.Unmarshal(item, &event); err != nil {
			return err
		}
		w.raw, w.events = append(w.raw, item...), append(w.events, event)
		if label != "" && at(event, "object", "metadata", "labels", label) != nil {
			return nil
		}
	}
}

// cborTwins is a watch both ways.
type cborTwins struct {
	uri, accept  string
	ours, theirs *cborWatch
}

func openCBORTwins(t *testing.T, ours, theirs *target, uri, accepts string) cborTwins {
	t.Helper()
	return cborTwins{uri, accepts, openCBORWatch(t, ours, uri, accepts), openCBORWatch(t, theirs, uri, accepts)}
}

// readCBORTwins reads all watches as until does, while the function meanwhile is called.
func readCBORTwins(t *testing.T, all []cborTwins, label string, meanwhile func()) {
	t.Helper()
	var wg sync.WaitGroup
	for _, pair := range all {
		for _, w := range []*cborWatch{pair.ours, pair.theirs} {
			wg.Go(func() {
				if err := w.until(label); err != nil {
					t.Errorf("%s: %v", pair.uri, err)
				}
			})
		}
	}
	meanwhile()
	wg.Wait()
}

// changes returns what the watch brought without periodic bookmarks, and the forms of these.
func (w *cborWatch) changes() (changes []string, bookmarks map[string]bool) {
	bookmarks = make(map[string]bool)
	for _, ev := range w.events {
		if at(ev, "type") == "BOOKMARK" {
			at(ev, "object", "metadata").(map[string]any)["resourceVersion"] = "RV"
		}
		line := fmt.Sprintf("%#v", ev) // which has the entries of maps in order
		if at(ev, "type") == "BOOKMARK" && at(ev, "object", "metadata", "annotations",
			"k8s.io/initial-events-end") == nil {
			bookmarks[line] = true
		} else {
			changes = append(changes, line)
		}
	}
	return changes, bookmarks
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
	var pairs []cborTwins
	way := p.plain(t)
	for i, uri := range uris {
		a := []string{cborType, preferCBOR, cborPartial}[i%3]
		if strings.Contains(uri, "spec.") {
			a = cborType // metadata has no such fields
		}
		pairs = append(pairs, openCBORTwins(t, way, direct, uri, a))
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
	readCBORTwins(t, pairs, "marker", func() {
		direct.create(t, "/api/v1/namespaces/a/configmaps", `{"apiVersion":"v1","kind":"ConfigMap",`+fmt.Sprintf(marked, "live")+`}`)
		direct.create(t, "/api/v1/namespaces/a/pods",
			strings.Replace(podBody("marker", "n2"), `"l":"1"`, `"l":"1","marker":"1"`, 1))
		direct.create(t, "/apis/ex.io/v1/namespaces/a/foos",
			`{"apiVersion":"ex.io/v1","kind":"Foo",`+fmt.Sprintf(marked, "marker")+`,"spec":{"c":"red"}}`)
	})
	events := 0
	for _, p := range pairs {
		got, _ := p.ours.changes()
		want, _ := p.theirs.changes()
		events += len(want)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("%s, %s: event %d of %d and %d:\n got %.1500s\nwant %.1500s", p.uri, p.accept, i, len(got),
					len(want), got[i:min(i+1, len(got))], want[i:min(i+1, len(want))])
				break
			}
		}
	}
	t.Logf("%d watches, %d events", len(pairs), events)
}

// testCBORBookmarks compares the bookmarks before the end of a watch.
func testCBORBookmarks(t *testing.T, c *cluster, p *watchfan) {
	direct, way := c.direct(t), p.plain(t)
	n := 0
	steady.Until(t, "bookmarks from both", func() error {
		var pairs []cborTwins
		for _, accepts := range []string{cborType, preferCBOR, cborPartial} {
			for _, uri := range []string{"/api/v1/configmaps", "/apis/ex.io/v1/foos"} {
				pairs = append(pairs, openCBORTwins(t, way, direct,
					uri+"?watch=1&resourceVersion=0&allowWatchBookmarks=1&labelSelector=none&timeoutSeconds=5", accepts))
			}
		}
		ended := make(chan struct{})
		var writing sync.WaitGroup
		writing.Go(func() { // progress for the bookmarks
			for ; pace(ended, 100*time.Millisecond); n++ {
				direct.patch(t, "/api/v1/namespaces/a/configmaps/x", fmt.Sprintf(`{"data":{"t":"%d"}}`, n))
				direct.patch(t, "/apis/ex.io/v1/namespaces/a/foos/f0", fmt.Sprintf(`{"spec":{"t":"%d"}}`, n))
			}
		})
		readCBORTwins(t, pairs, "", func() {})
		close(ended)
		writing.Wait()
		for _, pair := range pairs {
			_, got := pair.ours.changes()
			_, want := pair.theirs.changes()
			if len(got) == 0 || len(want) == 0 {
				return fmt.Errorf("%s as %s: %d, and %d at kube-apiserver", pair.uri, pair.accept, len(got), len(want))
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s, %s: bookmarks %v, want %v", pair.uri, pair.accept, got, want)
			}
		}
		return nil
	})
}

// testCBORInformers starts a process of its own, because client-go reads its feature gates from the
// environment once.
func testCBORInformers(t *testing.T, c *cluster, p *watchfan) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCBOR$", "-test.v")
	cmd.Env = append(os.Environ(), "KUBE_FEATURE_ClientsAllowCBOR=true", "KUBE_FEATURE_ClientsPreferCBOR=true",
		"E2E_CBOR_WATCHFAN="+p.ports.Insecure, "E2E_CBOR_SERVER="+c.Ready.Server, "E2E_CBOR_TOKEN="+c.token(t, "admin"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestCBOR") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// contentTypes is a transport that counts the content types of answers to reads.
type contentTypes struct {
	next http.RoundTripper

	mu    sync.Mutex
	count map[string]int
}

func (l *contentTypes) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err == nil && req.Method == http.MethodGet {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.count[resp.Header.Get("Content-Type")]++
	}
	return resp, err
}

// cborInformerProcess is what TestCBOR does in the process that it starts: informers of the dynamic
// client, which prefers CBOR, hold the cluster's state.
func cborInformerProcess(t *testing.T) {
	log := &contentTypes{count: make(map[string]int)}
	config := &rest.Config{Host: "http://" + os.Getenv("E2E_CBOR_WATCHFAN")}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { log.next = next; return log })
	ours, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := dynamic.NewForConfig(&rest.Config{Host: os.Getenv("E2E_CBOR_SERVER"),
		BearerToken: os.Getenv("E2E_CBOR_TOKEN"), TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	resources := []schema.GroupVersionResource{{Version: "v1", Resource: "configmaps"},
		{Version: "v1", Resource: "pods"}, {Group: "ex.io", Version: "v1", Resource: "foos"}}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(ours, 0)
	for _, gvr := range resources {
		factory.ForResource(gvr).Informer()
	}
	factory.Start(t.Context().Done())
	ctx, cancel := context.WithTimeout(t.Context(), steady.Patience)
	defer cancel()
	for gvr, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Fatalf("%v has not synced", gvr)
		}
	}
	foos := theirs.Resource(resources[2]).Namespace("b")
	list, err := theirs.Resource(resources[2]).Namespace("a").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("no foos: %v", err)
	}
	for i := range 20 {
		foo := list.Items[0].DeepCopy()
		foo.Object["metadata"] = map[string]any{"name": fmt.Sprintf("made-%d", i),
			"labels": map[string]any{"i": fmt.Sprint(i)}}
		if _, err := foos.Create(ctx, foo, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if err := foos.Delete(ctx, fmt.Sprintf("made-%d", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, gvr := range resources {
		want, err := theirs.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		store := factory.ForResource(gvr).Informer().GetStore()
		steady.Until(t, "state of "+gvr.Resource, func() error {
			if got := len(store.ListKeys()); got != len(want.Items) {
				return fmt.Errorf("holds %d, want %d", got, len(want.Items))
			}
			for i := range want.Items {
				key, _ := cache.MetaNamespaceKeyFunc(&want.Items[i])
				if got, _, _ := store.GetByKey(key); !equality.Semantic.DeepEqual(got, &want.Items[i]) {
					return fmt.Errorf("holds %s as\n%v, want\n%v", key, got, want.Items[i])
				}
			}
			return nil
		})
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if log.count["application/cbor-seq"] != len(resources) {
		t.Errorf("the answers to informers are %v, want %d watches in CBOR", log.count, len(resources))
	}
}

// TestCBORNotOffered: where kube-apiserver does not offer CBOR, a client that asks for it gets its
// next choice, or 406.
func TestCBORNotOffered(t *testing.T) {
	parallel(t)
	c, _ := quietCluster(t)
	d := c.direct(t)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	way, admin := p.plain(t), p.admin(t)
	var rows []row
	add := func(uri string, accepts ...string) {
		for _, a := range accepts {
			rows = append(rows, row{uri: uri, header: accept(a)})
		}
	}
	const configMaps, foos = "/api/v1/namespaces/a/configmaps", "/apis/ex.io/v1/namespaces/a/foos"
	// Reads and short watches pass through or are refused while their caches are filled.
	way.warmAs(t, configMaps, jsonType, protoType, partials)
	way.warmAs(t, foos, jsonType, partials)
	r0 := d.version(t, configMaps)
	for _, uri := range []string{configMaps, foos} {
		for _, query := range []string{"?resourceVersion=0", "/none?resourceVersion=0",
			fmt.Sprint("?watch=1&timeoutSeconds=5&resourceVersion=", r0)} {
			add(uri+query, cborType, cborPartials, cborType+","+cborPartial)
		}
	}
	checkAll(t, rows, d, way)
	rows = nil
	before := admin.metric(t, "watchfan_passthrough_requests_total")
	for _, uri := range []string{configMaps, foos} {
		for _, query := range []string{"?resourceVersion=0",
			fmt.Sprint("?watch=1&timeoutSeconds=5&resourceVersion=", r0)} {
			add(uri+query, preferCBOR, cborType+",application/json", cborType+";q=1,*/*;q=0.1",
				cborType+","+protoType+",application/json")
		}
	}
	checkAll(t, rows, d, way)
	if n := admin.metric(t, "watchfan_passthrough_requests_total") - before; n != 0 {
		t.Errorf("%v requests were passed through that another representation answers", n)
	}
}
