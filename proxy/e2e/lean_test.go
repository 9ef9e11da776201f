package e2e_test

import (
	"bytes"
	"compress/gzip"
	"context"
	bigendian "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// drop asks for objects without metadata.managedFields (KEP-5958). kube-apiserver 1.36 ignores it.
const drop = ";drop=metadata.managedFields"

// leanJSON removes metadata.managedFields from an object, a list or the events of a watch.
func leanJSON(b []byte) ([]byte, error) {
	type metadata struct{ ManagedFields json.RawMessage }
	type object struct{ Metadata metadata }
	var lean []byte
	for line := range bytes.Lines(b) {
		var in struct {
			Metadata metadata
			Object   object
			Items    []object
		}
		if err := json.Unmarshal(line, &in); err != nil {
			return nil, fmt.Errorf("%w in %.300q", err, line)
		}
		for _, o := range append(in.Items, in.Object, object{in.Metadata}) {
			if value := o.Metadata.ManagedFields; value != nil { // which is as in line
				line = bytes.Replace(line, fmt.Appendf(nil, `,"managedFields":%s`, value), nil, 1)
			}
		}
		lean = append(lean, line...)
	}
	return lean, nil
}

// leanProtobuf is leanJSON for protobuf.
func leanProtobuf(b []byte, watch bool) ([]byte, error) {
	if !watch {
		return leanUnknown(b)
	}
	var lean []byte
	for len(b) > 0 {
		if len(b) < 4 || len(b) < 4+int(bigendian.BigEndian.Uint32(b)) {
			return nil, errors.New("cut within an event")
		}
		n := 4 + int(bigendian.BigEndian.Uint32(b))
		var ev metav1.WatchEvent
		err := ev.Unmarshal(b[4:n])
		if err == nil && ev.Type != "ERROR" {
			ev.Object.Raw, err = leanUnknown(ev.Object.Raw)
		}
		if err != nil {
			return nil, err
		}
		message, err := ev.Marshal()
		if err != nil {
			return nil, err
		}
		lean = append(bigendian.BigEndian.AppendUint32(lean, uint32(len(message))), message...)
		b = b[n:]
	}
	return lean, nil
}

// leanUnknown removes managedFields from an object, or from the items of a list, with its type.
func leanUnknown(b []byte) ([]byte, error) {
	var u runtime.Unknown
	if err := u.Unmarshal(bytes.TrimPrefix(b, []byte("k8s\x00"))); err != nil {
		return nil, err
	}
	var err error
	if strings.HasSuffix(u.Kind, "List") {
		u.Raw, err = leanItems(u.Raw)
	} else {
		u.Raw, err = leanMessage(u.Raw)
	}
	if err != nil {
		return nil, err
	}
	lean, err := u.Marshal()
	return append([]byte("k8s\x00"), lean...), err
}

func leanItems(list []byte) ([]byte, error) {
	var lean []byte
	for len(list) > 0 {
		number, _, tag := protowire.ConsumeTag(list)
		n := protowire.ConsumeFieldValue(number, protowire.BytesType, list[max(tag, 0):])
		if tag < 0 || n < 0 {
			return nil, errors.New("no list")
		}
		field := list[:tag+n]
		if number == 2 { // an item; the other field is the list's metadata
			item, _ := protowire.ConsumeBytes(list[tag:])
			item, err := leanMessage(item)
			if err != nil {
				return nil, err
			}
			field = protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), item)
		}
		lean = append(lean, field...)
		list = list[tag+n:]
	}
	return lean, nil
}

func leanMessage(object []byte) ([]byte, error) {
	_, _, n := protowire.ConsumeField(object)
	var o metav1.PartialObjectMetadata
	if n < 0 || o.Unmarshal(object[:n]) != nil {
		return nil, errors.New("no object")
	}
	o.ManagedFields = nil
	lean, err := o.Marshal()
	return append(lean, object[n:]...), err
}

// lean returns an answer of kube-apiserver without managedFields, uncompressed.
func (r response) lean(t testing.TB) response {
	t.Helper()
	var err error
	r.body = plainBody(t, r)
	r.header = r.header.Clone()
	r.header.Del("Content-Encoding")
	switch kind := r.header.Get("Content-Type"); {
	case strings.HasPrefix(kind, protoType):
		r.body, err = leanProtobuf(r.body, strings.HasSuffix(kind, "stream=watch"))
	default:
		r.body, err = leanJSON(r.body)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// plainBody returns a body uncompressed.
func plainBody(t testing.TB, r response) []byte {
	t.Helper()
	if r.header.Get("Content-Encoding") != "gzip" {
		return r.body
	}
	z, err := gzip.NewReader(bytes.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// leanForms are the Accept headers of objects and of their metadata alone, for gets and watches. See
// listForm for lists.
var leanForms = []string{jsonType, protoType, partial, protoType + strings.TrimPrefix(partial, jsonType)}

// listForm returns an Accept header for lists.
func listForm(accepts string) string {
	return strings.ReplaceAll(accepts, "as=PartialObjectMetadata;", "as=PartialObjectMetadataList;")
}

// exactly has the caches of all forms hold the newest state of a namespace's ConfigMaps, and returns the query
// for that. A lane knows only the states since it began.
func (d *target) exactly(t testing.TB, theirs *target, ns, suffix string) (query string) {
	t.Helper()
	var forms []string
	for _, form := range leanForms {
		forms = append(forms, listForm(form)+suffix)
	}
	uri := "/api/v1/namespaces/" + ns + "/configmaps"
	d.warmAs(t, uri, forms...)
	rv := makeConfigMap(t, theirs, ns, "newest", "")
	d.awaitWrite(t, uri, rv, forms...)
	return fmt.Sprintf("?resourceVersion=%d&resourceVersionMatch=Exact", rv)
}

// TestLean: lists, gets and watches with drop=metadata.managedFields are kube-apiserver's answers
// without managedFields, byte for byte, in every representation and on every way, beside whole ones
// of the same lane.
func TestLean(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	theirs := c.direct(t)
	createNamespaces(t, theirs, "lean")
	createCRD(t, theirs, "lean.example.com", "Leaf", "Namespaced")
	p.waitReady(t)
	for i := range 60 {
		theirs.create(t, "/api/v1/namespaces/lean/configmaps",
			fmt.Sprintf(`{"metadata":{"name":"c-%02d","labels":{"l":"%d"}},"data":{"k":%q}}`,
				i, i%2, strings.Repeat("<&>é", 1000)))
	}
	// An empty entry removes all managedFields.
	theirs.patch(t, "/api/v1/namespaces/lean/configmaps/c-07", `{"metadata":{"managedFields":[{}]}}`)
	for i := range 3 {
		theirs.create(t, leafs, fmt.Sprintf(`{"apiVersion":"lean.example.com/v1","kind":"Leaf","metadata":{"name":"f%d",`+
			`"generateName":"g","labels":{"l":"1"}},"spec":{"c":"red","n":%d}}`, i, i))
	}
	ways := p.ways(t, c.token(t, "admin"))
	t.Run("watches", func(t *testing.T) { testLeanWatches(t, p, theirs, ways) })
	t.Run("reads", func(t *testing.T) { testLeanReads(t, p, theirs, ways) })
	t.Run("informer", func(t *testing.T) { testLeanInformer(t, p, theirs) })
	t.Run("not understood", func(t *testing.T) {
		for _, a := range []string{jsonType + ";drop=spec", jsonType + ";drop=spec," + jsonType,
			jsonType + drop + "+metadata.labels", tableType + drop, "application/yaml" + drop} {
			r := row{uri: "/api/v1/namespaces/lean/configmaps?resourceVersion=0", header: accept(a)}
			r.table = strings.Contains(a, "Table")
			r.check(t, theirs, ways[0])
		}
	})
	if n := p.admin(t).metric(t, "watchfan_upstream_watches", `resource="pods"`, `encoding="json"`); n != 1 {
		t.Errorf("%v upstream watches of pods in JSON, want 1 for whole and lean clients", n)
	}
}

const leafs = "/apis/lean.example.com/v1/namespaces/lean/leafs"

// oneName begins a selector of one object.
const oneName = "fieldSelector=metadata.name%3D"

// theEnd is a text in the last event of each watch of churnWatches.
const theEnd = "the-end"

// churnWatches are watches while the pods of the namespace lean change. Early ones begin at once, and late
// ones, which have to catch up, between the changes.
type churnWatches struct {
	t      *testing.T
	direct *target
	stop   chan struct{}
	churn  sync.WaitGroup
	writes atomic.Int64
	reads  sync.WaitGroup

	mu     sync.Mutex
	bodies map[string][]byte // by name
}

// watchChurn changes pods until end is called.
func watchChurn(t *testing.T, d *target) *churnWatches {
	c := &churnWatches{t: t, direct: d, stop: make(chan struct{}), bodies: make(map[string][]byte)}
	c.churn.Go(func() { podChurn(d, "lean", c.stop, &c.writes) })
	return c
}

// await waits until there have been n writes.
func (c *churnWatches) await(n int) {
	c.t.Helper()
	reach(c.t, "write", n, func() int { return int(c.writes.Load()) })
}

// read reads a watch to its last event.
func (c *churnWatches) read(name string, d *target, uri, accepts string) {
	c.reads.Go(func() {
		body, err := readWatch(c.t.Context(), d, uri, accepts)
		if err != nil {
			c.t.Errorf("%s %s as %s: %v", d.name, uri, accepts, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies[name] = body
	})
}

// end returns what the watches have brought, and the number of writes.
func (c *churnWatches) end() (bodies map[string][]byte, writes int64) {
	close(c.stop)
	c.churn.Wait()
	const pods = "/api/v1/namespaces/lean/pods"
	c.direct.do(c.t, http.MethodDelete, pods+"/p-3?gracePeriodSeconds=0", nil, "")
	c.direct.create(c.t, pods, strings.Replace(podBody("p-3", ""), `"l":"1"`, `"l":"1","is":"`+theEnd+`"`, 1))
	c.direct.create(c.t, pods, podBody(theEnd, "node-1"))
	c.direct.patch(c.t, leafs+"/f0", `{"metadata":{"labels":{"is":"`+theEnd+`"}}}`)
	c.reads.Wait()
	return c.bodies, c.writes.Load()
}

// readWatch returns the uncompressed bytes of a watch up to the event with the text theEnd. The watch must be
// one gzip member if d asks for gzip, and more than one object.
func readWatch(ctx context.Context, d *target, uri, accepts string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, steady.Patience)
	defer cancel()
	resp, err := d.open(ctx, http.MethodGet, uri, accept(accepts), "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	compressed := d.gzip && !strings.Contains(uri, oneName)
	if got := resp.Header.Get("Content-Encoding"); resp.StatusCode != http.StatusOK || compressed != (got == "gzip") {
		return nil, fmt.Errorf("status %d, Content-Encoding %q", resp.StatusCode, got)
	}
	body := resp.Body
	if compressed {
		body = proxytest.NewMemberReader(body)
	}
	return readEvents(body, strings.HasPrefix(accepts, protoType))
}

// readEvents returns the bytes of a watch up to the event with the text theEnd.
func readEvents(body io.Reader, protobuf bool) (all []byte, err error) {
	for in := proxytest.NewEventReader(body, protobuf); ; {
		event, err := in.Next()
		if err != nil {
			return all, err
		}
		if protobuf {
			all = bigendian.BigEndian.AppendUint32(all, uint32(len(event)))
		}
		all = append(all, event...)
		if bytes.Contains(event, []byte(theEnd)) {
			return all, nil
		}
	}
}

// testLeanWatches compares watches live and from history.
func testLeanWatches(t *testing.T, p *watchfan, theirs *target, ways []*target) {
	const pods = "/api/v1/namespaces/lean/pods"
	rv := theirs.version(t, pods)
	watches := watchChurn(t, theirs)
	var names []string
	forms := make(map[string]string) // the Accept header by name
	begin := func(i, late int, uri, accepts string) {
		name := fmt.Sprintf("%d %s as %s", late, uri, accepts)
		names, forms[name] = append(names, name), accepts
		watches.read("theirs "+name, theirs, uri, accepts)
		way := ways[i%len(ways)]
		if i/len(ways)%2 == 0 {
			way = way.zipped()
		}
		watches.read("lean "+name, way, uri, accepts+drop)
		watches.read("whole "+name, way, uri, accepts)
	}
	n := 0
	for late := range 2 {
		watches.await(40 * late)
		for _, accepts := range leanForms {
			for _, selector := range []string{"", "&fieldSelector=spec.nodeName%3Dnode-1", "&labelSelector=l%3D1",
				"&" + oneName + "p-3"} {
				if strings.Contains(accepts, "as=") && strings.Contains(selector, "nodeName") {
					continue // metadata alone does not tell, and kube-apiserver answers
				}
				begin(n, late, fmt.Sprintf("%s?watch=1&resourceVersion=%d%s", pods, rv, selector), accepts)
				n++
			}
		}
		begin(n, late, fmt.Sprintf("%s?watch=1&resourceVersion=%d", leafs, rv), jsonType)
		theirs.patch(t, leafs+"/f0", fmt.Sprintf(`{"spec":{"n":%d}}`, 10+late))
	}
	watches.await(100)
	if n := p.admin(t).metric(t, "watchfan_lean_watchers"); n == 0 {
		t.Error("watchfan_lean_watchers is 0")
	}
	bodies, writes := watches.end()
	whole, lean := 0, 0
	for _, name := range names {
		want := bodies["theirs "+name]
		if got := bodies["whole "+name]; !bytes.Equal(got, want) {
			t.Errorf("whole %s: %d bytes, and they are not the %d of kube-apiserver", name, len(got), len(want))
		}
		whole += len(want)
		var err error
		if strings.HasPrefix(forms[name], protoType) {
			want, err = leanProtobuf(want, true)
		} else {
			want, err = leanJSON(want)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := bodies["lean "+name]; !bytes.Equal(got, want) {
			t.Errorf("lean %s: got %d bytes\n%.1000q\nwant %d\n%.1000q", name, len(got), got, len(want), want)
		}
		lean += len(want)
	}
	t.Logf("%d writes, %d watches of each kind, %d bytes whole and %d lean", writes, len(names), whole, lean)
	if writes < 20 || whole < 100_000 || lean > whole*3/4 {
		t.Error("this test measures nothing")
	}
}

// testLeanReads compares gets and lists that are served from the cache.
func testLeanReads(t *testing.T, p *watchfan, theirs *target, ways []*target) {
	const configMaps = "/api/v1/namespaces/lean/configmaps"
	admin := p.admin(t)
	exact := ways[0].exactly(t, theirs, "lean", drop)
	compare := func(uri, accepts, leanly string) (whole, lean int) {
		t.Helper()
		want := theirs.do(t, http.MethodGet, uri, accept(accepts), "").lean(t)
		for _, way := range append(ways, ways[1].zipped()) {
			before := admin.metric(t, "watchfan_passthrough_requests_total")
			got := way.do(t, http.MethodGet, uri, accept(leanly), "")
			if admin.metric(t, "watchfan_passthrough_requests_total") != before {
				t.Errorf("%s %s through %s was passed through", uri, leanly, way.name)
			}
			if got.status != want.status || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
				t.Errorf("%s %s through %s: %d, %v", uri, leanly, way.name, got.status, got.header)
			}
			lean = len(got.body) // of gzip in the end
			if g, w := (row{}).normal(got), (row{}).normal(want); !bytes.Equal(g, w) {
				t.Errorf("%s %s through %s: %d bytes\n%.1000q\nwant %d\n%.1000q",
					uri, leanly, way.name, len(g), g, len(w), w)
			}
		}
		return len(want.body), lean
	}
	for _, form := range leanForms {
		list := listForm(form)
		for _, uri := range []string{configMaps + exact, configMaps + exact + "&labelSelector=l%3D1",
			configMaps + exact + "&limit=7", configMaps + "?resourceVersion=0&" + oneName + "c-07"} {
			compare(uri, list, list+drop)
		}
		for _, name := range []string{"/c-00", "/c-07"} {
			compare(configMaps+name+"?resourceVersion=0", form, form+drop)
		}
		if strings.HasPrefix(form, jsonType) {
			compare(leafs+"?resourceVersion=0", list, list+drop)
			compare(leafs+"/f1?resourceVersion=0", form, form+drop)
		}
	}
	// A custom resource has no protobuf, so the next clause counts. The last header is client-go's.
	compare(leafs+"?resourceVersion=0", jsonType, protoType+","+jsonType+drop)
	compare(configMaps+exact, jsonType, "application/json; drop=metadata.managedFields,*/*; drop=metadata.managedFields")
	compare(configMaps+exact, protoType, protoType+drop+","+jsonType)
	plain, zipped := compare(configMaps+exact, jsonType, jsonType+drop)
	if zipped == 0 || zipped > plain/2 {
		t.Errorf("a list of %d bytes takes %d of gzip", plain, zipped)
	}
	missing := row{uri: configMaps + "/none?resourceVersion=0", header: accept(jsonType + drop)}
	missing.check(t, theirs, ways[0])

	// Pages of a lean list are the list.
	var names []string
	for token := ""; ; {
		var page struct {
			Metadata struct{ Continue string }
			Items    []metav1.PartialObjectMetadata
		}
		uri := fmt.Sprintf("%s?limit=7&continue=%s", configMaps, token)
		if token == "" {
			uri = configMaps + exact + "&limit=7"
		}
		if err := json.Unmarshal(ways[0].do(t, http.MethodGet, uri, accept(jsonType+drop), "").body, &page); err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Items {
			if names = append(names, o.Name); o.ManagedFields != nil {
				t.Errorf("%s has managedFields", o.Name)
			}
		}
		if token = page.Metadata.Continue; token == "" {
			break
		}
	}
	if len(names) < 60 {
		t.Errorf("pages of %d objects", len(names))
	}
}

// testLeanInformer: today's client-go is lean if its configuration says so, and its informers hold
// the cluster's state without managedFields.
func testLeanInformer(t *testing.T, p *watchfan, theirs *target) {
	needsPlain(t)
	config := &rest.Config{Host: "http://" + p.ports.Insecure, QPS: 100, Burst: 100}
	config.AcceptContentTypes = protoType + drop
	checkLeanInformer(t, theirs, config, "lean")
}

// listWatch lists, and begins no watch-list.
type listWatch struct{ *cache.ListWatch }

func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// checkLeanInformer fails the test unless an informer comes to hold a namespace's ConfigMaps as
// kube-apiserver lists them, without managedFields, and follows two writes.
func checkLeanInformer(t *testing.T, theirs *target, config *rest.Config, namespace string) {
	t.Helper()
	config.ContentType = protoType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// A list from kube-apiserver has managedFields, and client-go's detector would see a difference.
	source := listWatch{cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", namespace, fields.Everything())}
	informer := cache.NewSharedIndexInformer(source, &corev1.ConfigMap{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { informer.RunWithContext(ctx) })
	steady.Until(t, "sync", func() error {
		if !informer.HasSynced() {
			return errors.New("not synced")
		}
		return nil
	})
	makeConfigMap(t, theirs, namespace, "informed", "")
	uri := "/api/v1/namespaces/" + namespace + "/configmaps"
	theirs.patch(t, uri+"/informed", `{"data":{"k":"informer"}}`)
	steady.Until(t, "informer's state", func() error {
		var list corev1.ConfigMapList
		if err := json.Unmarshal(theirs.get(t, uri).body, &list); err != nil {
			return err
		}
		managed := 0
		for i := range list.Items {
			managed += len(list.Items[i].ManagedFields)
			list.Items[i].ManagedFields = nil
		}
		if managed == 0 {
			t.Fatal("kube-apiserver has no managedFields")
		}
		return holds[corev1.ConfigMap](informer, list.Items)
	})
}
