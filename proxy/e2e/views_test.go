package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// viewsConfig has a view without managedFields, one annotation, and the data of some ConfigMaps.
const viewsConfig = `apiVersion: watchfan.io/v1alpha1
kind: WatchfanConfiguration
views:
  - name: agents
    drop:
      - fields: [metadata.managedFields]
        annotations: [e2e.example.com/cut]
      - fields: [data, spec.c]
        resources: [configmaps, fruits.views.example.com]
        labelSelector: l=1
`

// viewsArgs returns the arguments of a watchfan with these views.
func viewsArgs(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(viewsConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config", file}
}

// in returns the way d below a view.
func (d *target) in(view string) *target {
	to := *d
	to.name, to.base = d.name+"/"+view, d.base+"/views/"+view
	return &to
}

const fruits = "/apis/views.example.com/v1/namespaces/views/fruits"

// createViewed creates objects of which the view agents leaves out the parts with the word CUT.
func createViewed(t *testing.T, theirs *target) {
	t.Helper()
	createNamespaces(t, theirs, "views")
	createCRD(t, theirs, "views.example.com", "Fruit", "Namespaced")
	for i := range 60 {
		theirs.create(t, "/api/v1/namespaces/views/configmaps", viewedConfigMap(i))
	}
	for i := range 3 {
		theirs.create(t, fruits, fmt.Sprintf(`{"apiVersion":"views.example.com/v1","kind":"Fruit","metadata":{"name":"f%d","labels":{"l":"%d"}},`+
			`"spec":{"c":"CUT","n":%d}}`, i, i%2, i))
	}
}

func viewedConfigMap(i int) string {
	data, annotations := "kept", `"e2e.example.com/cut":"CUT","e2e.example.com/kept":"x"`
	if i%2 == 1 {
		data, annotations = strings.Repeat("CUT<&>é", 300), `"e2e.example.com/cut":"CUT"`
	}
	return fmt.Sprintf(`{"metadata":{"name":"c-%02d","labels":{"l":"%d"},"annotations":{%s}},"data":{"k":%q}}`, i, i%2, annotations, data)
}

// What the view agents leaves out of JSON without managedFields: an annotation, the data of
// ConfigMaps as they are created, and a member of the custom resource f1.
var (
	cutAnnotation = regexp.MustCompile(`,"annotations":\{"e2e.example.com/cut":"CUT"\}|"e2e.example.com/cut":"CUT",`)
	cutData       = regexp.MustCompile(`,"data":\{"k":"CUT[^}]*\}`)
	cutFruit      = regexp.MustCompile(`("labels":\{"l":"1"\}[^}]*\},"spec":\{)"c":"CUT",`)
)

// viewed returns what the view agents makes of JSON of kube-apiserver.
func viewed(t testing.TB, body []byte) []byte {
	t.Helper()
	lean, err := leanJSON(body)
	if err != nil {
		t.Fatal(err)
	}
	return cutFruit.ReplaceAll(cutData.ReplaceAll(cutAnnotation.ReplaceAll(lean, nil), nil), []byte("$1"))
}

// TestViews: what unmodified clients get in a view is kube-apiserver's answer without its fields,
// byte for byte, on every way.
func TestViews(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := privateWatchfan(t, c, viewsArgs(t)...)
	theirs := c.direct(t)
	createViewed(t, theirs)
	p.waitReady(t)
	ways := p.ways(t, c.token(t, "admin"))
	t.Run("reads", func(t *testing.T) { testViewReads(t, p, theirs, ways) })
	t.Run("watches", func(t *testing.T) { testViewWatches(t, p, theirs, ways) })
	t.Run("discovery", func(t *testing.T) { testViewDiscovery(t, theirs, ways) })
}

func testViewReads(t *testing.T, p *watchfan, theirs *target, ways []*target) {
	const configMaps = "/api/v1/namespaces/views/configmaps"
	admin := p.admin(t)
	exact := ways[0].in("lean").exactly(t, theirs, "views", "")
	compare := func(view, uri, accepts, asked string) {
		t.Helper()
		want := theirs.do(t, http.MethodGet, uri, accept(accepts), "")
		body := want.lean(t).body
		if view == "agents" {
			body = viewed(t, plainBody(t, want))
		}
		for _, way := range append(ways, ways[1].zipped()) {
			before := admin.metric(t, "watchfan_passthrough_requests_total")
			got := way.in(view).do(t, http.MethodGet, uri, accept(asked), "")
			if admin.metric(t, "watchfan_passthrough_requests_total") != before {
				t.Errorf("%s %s through %s was passed through", uri, asked, way.in(view).name)
			}
			if g := plainBody(t, got); got.status != want.status || !bytes.Equal(g, body) ||
				got.header.Get("Content-Type") != want.header.Get("Content-Type") {
				t.Errorf("%s %s through %s: %d %v, %d bytes\n%.1000q\nwant %d\n%.1000q", uri, asked, way.in(view).name,
					got.status, got.header, len(g), g, len(body), body)
			}
		}
	}
	for _, form := range leanForms {
		compare("lean", configMaps+exact, listForm(form), listForm(form))
		compare("lean", configMaps+"/c-00?resourceVersion=0", form, form)
	}
	compare("lean", configMaps+exact, jsonType, jsonType+drop) // which asks for the same
	for _, uri := range []string{configMaps + exact, configMaps + exact + "&labelSelector=l%3D1", configMaps + exact + "&limit=7",
		configMaps + "/c-00?resourceVersion=0", configMaps + "/c-01?resourceVersion=0", sameState(t, ways[0], fruits)} {
		compare("agents", uri, jsonType, jsonType)
		compare("agents", uri, jsonType, protoType+","+jsonType) // without data only in JSON
	}
	if body := theirs.get(t, configMaps).body; len(viewed(t, body)) > len(body)*2/3 {
		t.Error("the view leaves nothing out")
	}
}

func testViewWatches(t *testing.T, p *watchfan, theirs *target, ways []*target) {
	const configMaps = "/api/v1/namespaces/views/configmaps"
	uri := fmt.Sprintf("%s?watch=1&resourceVersion=%d", configMaps, theirs.version(t, configMaps))
	type watched struct {
		way      *target
		selector string
		body     []byte
		err      error
	}
	var all []*watched
	for _, selector := range []string{"", "&labelSelector=l%3D1"} {
		all = append(all, &watched{way: theirs, selector: selector})
		for _, way := range append(ways, ways[0].zipped(), ways[2].zipped()) {
			for _, d := range []*target{way, way.in("lean"), way.in("agents")} {
				all = append(all, &watched{way: d, selector: selector})
			}
		}
	}
	var reading sync.WaitGroup
	for _, w := range all {
		reading.Go(func() { w.body, w.err = readWatch(t.Context(), w.way, uri+w.selector, jsonType) })
	}
	p.admin(t).awaitWatchers(t, len(all)-2)
	for i := range 20 {
		theirs.patch(t, fmt.Sprintf("%s/c-%02d", configMaps, i), fmt.Sprintf(`{"data":{"n":"CUT %d"}}`, i))
	}
	theirs.patch(t, configMaps+"/c-01", `{"metadata":{"labels":{"l":"2"}}}`) // leaves the selector, and keeps its data
	theirs.remove(t, configMaps+"/c-59")
	theirs.patch(t, configMaps+"/c-03", `{"metadata":{"labels":{"is":"`+theEnd+`"}}}`)
	reading.Wait()
	want := make(map[string][]byte)
	for _, w := range all {
		if w.err != nil {
			t.Fatalf("%s: %v", w.way.name, w.err)
		}
		if w.way == theirs {
			want[w.selector] = w.body
		}
	}
	for _, w := range all {
		expected := want[w.selector]
		if strings.Contains(w.way.name, "/lean") || strings.Contains(w.way.name, "/agents") {
			var err error
			if expected, err = leanJSON(expected); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(w.way.name, "/agents") {
			expected = viewedEvents(t, expected)
		}
		if !bytes.Equal(w.body, expected) {
			t.Errorf("%s%s: %d bytes\n%.2000s\nwant %d\n%.2000s", w.way.name, w.selector, len(w.body), w.body, len(expected), expected)
		}
	}
	admin := p.admin(t)
	if n := admin.metric(t, "watchfan_view_sent_bytes_total", `view="agents"`); n == 0 {
		t.Error("watchfan_view_sent_bytes_total is 0")
	}
	if n := admin.metric(t, "watchfan_upstream_watches", `resource="configmaps"`, `encoding="json"`); n != 1 {
		t.Errorf("%v upstream watches of ConfigMaps in JSON, want 1 for all views", n)
	}
}

// viewedEvents leaves out what the view agents leaves out of lean events, whose objects may have
// other data by now.
func viewedEvents(t testing.TB, lines []byte) (events []byte) {
	t.Helper()
	data := regexp.MustCompile(`,"data":\{.*\}(\}\}\n)$`)
	for line := range bytes.Lines(lines) {
		line = cutAnnotation.ReplaceAll(line, nil)
		if bytes.Contains(line, []byte(`"l":"1"}`)) {
			line = data.ReplaceAll(line, []byte("$1"))
		}
		events = append(events, line...)
	}
	return events
}

// testViewDiscovery compares what does not concern objects.
func testViewDiscovery(t *testing.T, theirs *target, ways []*target) {
	for _, uri := range []string{"/api", "/apis", "/api/v1", "/apis/views.example.com/v1", "/version", "/openapi/v3", "/healthz", "/readyz", "/", "/none"} {
		for _, way := range ways {
			steady.Until(t, "same answer of "+uri+" through "+way.name, func() error { // new APIs are published late
				got, want := way.in("lean").get(t, uri), theirs.get(t, uri)
				if got.status != want.status || !bytes.Equal(got.body, want.body) {
					return fmt.Errorf("%d %.300q, want %d %.300q", got.status, got.body, want.status, want.body)
				}
				return nil
			})
		}
	}
	const review = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`
	for _, way := range ways {
		got := way.in("lean").do(t, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, review)
		if got.status != http.StatusCreated || !bytes.Contains(got.body, []byte(`"allowed":true`)) {
			t.Errorf("%s: %d %s", way.name, got.status, got.body)
		}
	}
}

// TestViewPrograms: unmodified kubectl and an informer whose server is a view know what they know at
// kube-apiserver, without managedFields.
func TestViewPrograms(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	p := privateWatchfan(t, c, viewsArgs(t)...)
	p.waitReady(t)
	theirs, ours := programWays(t, c, p)
	ours.target = ours.in("lean")
	createFollowed(t, theirs.target)
	t.Run("kubectl", func(t *testing.T) { testViewKubectl(t, theirs, ours) })
	t.Run("informer", func(t *testing.T) { testViewInformer(t, theirs, ours) })
	admin := p.admin(t)
	if n := admin.metric(t, "watchfan_view_requests_total", `view="lean"`, `verb="watch"`); n == 0 {
		t.Error("no watches in the view")
	}
	if n := admin.metric(t, "watchfan_passthrough_watches_total"); n > 0 {
		t.Errorf("%v watches were passed through", n)
	}
}

func testViewKubectl(t *testing.T, theirs, ours programWay) {
	program := binary(t, "KUBECTL_BIN", "kubectl")
	user := &api.AuthInfo{Token: theirs.token}
	files := map[string]string{"theirs": theirs.kubeconfig(t, user), "ours": ours.kubeconfig(t, user)}
	run := func(way string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"--kubeconfig", files[way]}, args...)...)
		cmd.Env = append([]string{"HOME=" + t.TempDir()}, proxytest.Detectors...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{
		{"get", "configmaps,services", "-n", "followed", "--output=name"}, {"get", "configmaps", "-n", "followed", "--output=yaml"},
		{"get", "pods", "-n", "followed", "--no-headers", "--output=custom-columns=N:.metadata.name,L:.metadata.labels"},
		{"api-resources", "--no-headers"}, {"auth", "can-i", "list", "pods"}, {"explain", "pod.spec.nodeName"}, {"describe", "service", "first-0", "-n", "followed"},
	} {
		want, err := run("theirs", args...)
		got, err2 := run("ours", args...)
		if err != nil || err2 != nil || got != want || got == "" {
			t.Errorf("kubectl %q: %v\n%.1000s\nwant %v\n%.1000s", args, err2, got, err, want)
		}
	}
	theirs.create(t, "/api/v1/nodes", `{"metadata":{"name":"view-node","labels":{"k":"v"}}}`) // of which there is no lane
	for _, args := range [][]string{{"get", "services", "-n", "followed"}, {"get", "node", "view-node"}} {
		args = append(args, "--output=yaml", "--show-managed-fields")
		if out, err := run("theirs", args...); err != nil || !strings.Contains(out, "managedFields") {
			t.Errorf("kubectl %q: kube-apiserver has no managedFields: %v in %.600s", args, err, out)
		}
		if out, err := run("ours", args...); err != nil || strings.Contains(out, "managedFields") {
			t.Errorf("kubectl %q: managedFields in the view: %v %.1000s", args, err, out)
		}
	}
	for _, args := range [][]string{{"create", "configmap", "written", "-n", "followed"}, {"delete", "configmap", "first-0", "-n", "followed"}} {
		if out, err := run("ours", args...); err == nil || !strings.Contains(out, "read-only") {
			t.Errorf("kubectl %q: %v %s", args, err, out)
		}
	}
}

// testViewInformer compares the store of an informer with a list of kube-apiserver, object by
// object.
func testViewInformer(t *testing.T, theirs, ours programWay) {
	config, err := clientcmd.BuildConfigFromFlags("", ours.kubeconfig(t, &api.AuthInfo{Token: theirs.token}))
	if err != nil {
		t.Fatal(err)
	}
	checkLeanInformer(t, theirs.target, config, "followed")
}
