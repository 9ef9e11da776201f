package e2e_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
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

var protobufs = func() *protobuf.Serializer {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return protobuf.NewSerializer(s, s)
}()

// lessProtobuf clears fields of an object, or of those of a list or an event, in protobuf.
func lessProtobuf(b []byte, clear func(metav1.Object)) ([]byte, error) {
	var e metav1.WatchEvent
	if !bytes.HasPrefix(b, []byte("k8s\x00")) {
		err := e.Unmarshal(b)
		if err == nil {
			e.Object.Raw, err = lessProtobuf(e.Object.Raw, clear)
		}
		if err != nil {
			return nil, err
		}
		return e.Marshal()
	}
	o, _, err := protobufs.Decode(b, nil, nil)
	if err != nil {
		return nil, err
	}
	clearFields := func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			clear(m)
		}
		return err
	}
	if meta.IsListType(o) {
		err = meta.EachListItem(o, clearFields)
	} else {
		err = clearFields(o)
	}
	if err != nil {
		return nil, err
	}
	return runtime.Encode(protobufs, o)
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

// asker is a client that is sent objects without some fields, because it reads in a view or because of what stands
// behind a media type in its Accept header. Whoever does neither is sent whole objects.
type asker struct{ view, clause string }

var (
	lean, inLean, inAgents = asker{clause: drop}, asker{view: "lean"}, asker{view: "agents"}
	askers                 = []asker{lean, inLean, inAgents}
)

// viewsConfig has the view agents, which leaves out the parts of TestTrimmed's objects that have the word CUT.
const viewsConfig = `apiVersion: watchfan.io/v1alpha1
kind: WatchfanConfiguration
views:
  - name: agents
    drop:
      - fields: [metadata.managedFields]
        annotations: [e2e.example.com/cut]
      - fields: [data, spec.c]
        resources: [configmaps, fruits.trimmed.example.com]
        labelSelector: l=1
`

var cutByAgents = regexp.MustCompile(`,"annotations":\{"e2e.example.com/cut":"CUT"\}|"e2e.example.com/cut":"CUT",|` +
	`,"data":\{"k":"CUT[^}]*\}|"c":"CUT",`)

// less returns what a is sent of an answer or an event of kube-apiserver, uncompressed.
func (a asker) less(b []byte) (less []byte, err error) {
	switch {
	case a == asker{} || len(b) == 0:
		return b, nil
	case bytes.HasPrefix(b, []byte("{")):
		less, err = leanJSON(b)
	case a == inAgents:
		return lessProtobuf(b, clearByAgents)
	default:
		return lessProtobuf(b, func(o metav1.Object) { o.SetManagedFields(nil) })
	}
	if a == inAgents {
		less = cutByAgents.ReplaceAll(less, nil)
	}
	return less, err
}

// clearByAgents clears what the view agents leaves out.
func clearByAgents(o metav1.Object) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	delete(annotations, "e2e.example.com/cut")
	o.SetAnnotations(annotations)
	if m, ok := o.(*corev1.ConfigMap); ok && o.GetLabels()["l"] == "1" {
		m.Data = nil
	}
}

// in returns the way d below a view; "" is none.
func (d *target) in(view string) *target {
	to := *d
	if view != "" {
		to.name, to.base = d.name+"/"+view, d.base+"/views/"+view
	}
	return &to
}

const (
	trimmedMaps   = "/api/v1/namespaces/trimmed/configmaps"
	trimmedFruits = "/apis/trimmed.example.com/v1/namespaces/trimmed/fruits"
)

// TestTrimmed: objects without some fields, as clients and views ask for them, are kube-apiserver's without these fields,
// byte for byte, in each representation and on every way, beside whole ones of the same lane.
func TestTrimmed(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(viewsConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	p := privateWatchfan(t, c, "--config", file)
	theirs := c.direct(t)
	createNamespaces(t, theirs, "trimmed")
	createCRD(t, theirs, "trimmed.example.com", "Fruit", "Namespaced")
	for i := range 60 {
		cut := []string{`"k":"kept"`, fmt.Sprintf(`"k":%q`, strings.Repeat("CUT<&>é", 300))}[i%2]
		theirs.create(t, trimmedMaps, fmt.Sprintf(`{"metadata":{"name":"c-%02d","labels":{"l":"%d"},`+
			`"annotations":{"e2e.example.com/cut":"CUT"%s}},"data":{%s}}`, i, i%2, []string{`,"e2e.example.com/kept":"x"`, ""}[i%2], cut))
	}
	theirs.patch(t, trimmedMaps+"/c-07", `{"metadata":{"managedFields":[{}]}}`) // an empty entry removes all
	for i := range 2 {
		theirs.create(t, trimmedFruits, fmt.Sprintf(`{"apiVersion":"trimmed.example.com/v1","kind":"Fruit","metadata":{"name":"f%d",`+
			`"generateName":"g","labels":{"l":"%d"}},"spec":{"c":%q,"n":1}}`, i, i, []string{"kept", "CUT"}[i]))
	}
	p.waitReady(t)
	ways := p.ways(t, c.token(t, "admin"))
	t.Run("reads", func(t *testing.T) { testTrimmedReads(t, theirs, ways) })
	t.Run("watches", func(t *testing.T) { runScenarios(t, "testdata/scenarios/trimmed", c, p) })
	t.Run("programs", func(t *testing.T) { testTrimmedPrograms(t, c, p) })
	if n := p.admin(t).metric(t, "watchfan_upstream_watches", `resource="configmaps"`, `encoding="json"`); n != 1 {
		t.Errorf("%v upstream watches of ConfigMaps in JSON, want 1 for all clients", n)
	}
}

func testTrimmedReads(t *testing.T, theirs *target, ways []*target) {
	var forms []string
	for _, form := range leanForms {
		forms = append(forms, listForm(form)+drop)
	}
	ways[0].warmAs(t, trimmedMaps, forms...)
	ways[0].warmAs(t, trimmedFruits, forms[0], forms[2], forms[3])
	pages := pagesOf(t, theirs, trimmedMaps+"?limit=25")
	rv := theirs.patch(t, trimmedMaps+"/c-00", `{"metadata":{"annotations":{"e2e.example.com/kept":"y"}}}`)
	ways[0].awaitWrite(t, trimmedMaps, rv, forms...)
	exact := fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", trimmedMaps, rv)
	uris := append(pages, exact, exact+"&labelSelector=l%3D1", exact+"&limit=7",
		trimmedMaps+"?resourceVersion=0&fieldSelector=metadata.name%3Dc-07", trimmedMaps+"/c-00?resourceVersion=0",
		trimmedMaps+"/c-07?resourceVersion=0", trimmedFruits+"?resourceVersion=0", trimmedFruits+"/f1?resourceVersion=0")
	for _, a := range askers {
		var rows []row
		add := func(uri, accepts string) {
			rows = append(rows, row{uri: uri, header: accept(accepts), asker: a, cached: true})
		}
		for _, form := range leanForms {
			for _, uri := range uris {
				switch {
				case strings.HasPrefix(uri, trimmedFruits) && form == protoType:
				case strings.Contains(uri, "/c-0") || strings.Contains(uri, "/f1"):
					add(uri, form+a.clause)
				default:
					add(uri, listForm(form)+a.clause)
				}
			}
		}
		if a == lean {
			add(exact, jsonType+drop)
			rows[len(rows)-1].header.Set("Accept-Encoding", "gzip")
			// A custom resource has no protobuf, so the next clause counts. The next header is client-go's.
			add(trimmedFruits+"?resourceVersion=0", protoType+","+jsonType+drop)
			add(exact, "application/json; drop=metadata.managedFields,*/*; drop=metadata.managedFields")
			add(exact, protoType+drop+","+jsonType)
		}
		var below []*target
		for _, way := range ways {
			below = append(below, way.in(a.view))
		}
		checkAll(t, rows, theirs, below...)
	}
}

// testTrimmedPrograms: unmodified kubectl and an informer whose server is a view know what they know at kube-apiserver,
// without managedFields.
func testTrimmedPrograms(t *testing.T, c *cluster, p *watchfan) {
	theirs, ours := programWays(t, c, p)
	ours.target = ours.in("lean")
	user := &api.AuthInfo{Token: theirs.token}
	var ways []kubectlWay
	for _, w := range []programWay{theirs, ours} {
		ways = append(ways, newKubectl(t, t.TempDir(), w.name, "--kubeconfig", w.kubeconfig(t, user), "--namespace", "trimmed"))
	}
	for _, args := range []string{"get configmaps,fruits --output=name", "get configmaps --output=yaml", "auth can-i list pods",
		"explain pod.spec.nodeName", "describe configmap c-00"} {
		sameWords(t, ways, nil, strings.Fields(args)...)
	}
	theirs.create(t, "/api/v1/nodes", `{"metadata":{"name":"trimmed","labels":{"k":"v"}}}`) // of which there is no lane
	for args, want := range map[string][2]string{
		"get fruits --output=yaml --show-managed-fields":       {"managedFields", "kind: Fruit"},
		"get node trimmed --output=yaml --show-managed-fields": {"managedFields", "trimmed"},
		"delete configmap c-00":                                {"deleted", "read-only"},
	} {
		for i := len(ways) - 1; i >= 0; i-- {
			got, err := ways[i].run(t.Context(), strings.Fields(args))
			if err != nil || !strings.Contains(got, want[i]) || strings.Contains(got, "managedFields") != (want[i] == "managedFields") {
				t.Errorf("kubectl %s at %s: %v %.600s", args, ways[i].name, err, got)
			}
		}
	}

	config, err := clientcmd.BuildConfigFromFlags("", ours.kubeconfig(t, user))
	if err != nil {
		t.Fatal(err)
	}
	config.ContentType = protoType
	checkLeanInformer(t, theirs.target, config)
	config.Host, config.AcceptContentTypes = strings.TrimSuffix(config.Host, "/views/lean"), protoType+drop
	checkLeanInformer(t, theirs.target, config)
}

// listWatch lists, and begins no watch-list.
type listWatch struct{ *cache.ListWatch }

func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// checkLeanInformer fails the test unless an informer comes to hold TestTrimmed's ConfigMaps as kube-apiserver lists them,
// without managedFields, and follows a write.
func checkLeanInformer(t *testing.T, theirs *target, config *rest.Config) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// A list from kube-apiserver has managedFields, and client-go's detector would see a difference.
	source := listWatch{cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", "trimmed", fields.Everything())}
	informer := cache.NewSharedIndexInformer(source, &corev1.ConfigMap{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { informer.RunWithContext(ctx) })
	written := false
	steady.Until(t, "informer's state", func() error {
		if !informer.HasSynced() {
			return errors.New("not synced")
		}
		if !written {
			theirs.patch(t, trimmedMaps+"/c-02", fmt.Sprintf(`{"data":{"k":%q}}`, config.Host))
			written = true
		}
		var list corev1.ConfigMapList
		if err := json.Unmarshal(theirs.get(t, trimmedMaps).body, &list); err != nil {
			return err
		}
		for i := range list.Items {
			list.Items[i].ManagedFields = nil
		}
		return holds[corev1.ConfigMap](informer, list.Items)
	})
}
