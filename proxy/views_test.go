package proxy_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/view"
)

// The API below a view is that of kube-apiserver, read-only. No path of a view reaches
// kube-apiserver with its prefix.
func TestViewPaths(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", "1")
	const lean = "/views/lean"
	for _, path := range []string{cmsPath + "?resourceVersion=0", cmsPath + "?resourceVersion=0&pretty=1", "/apis", "/api/v1", "/version"} {
		want, wantBody := f.get(path)
		got, body := f.get(lean + path)
		if got.StatusCode != want.StatusCode || len(body) != len(wantBody) || got.StatusCode == http.StatusNotFound && path != "/version" {
			t.Errorf("%s: %s %q, want %s %q", path, got.Status, body, want.Status, wantBody)
		}
	}
	w := f.watch("%s%s", lean, anyState)
	w.Await(2)
	w.AwaitVersion(f.cms.Put("ns", "b", "1"))
	wantStrings(t, "watch", w.Strings(), "ADDED ns/a 101", "END 101", "ADDED ns/b 102")

	for _, path := range []string{"/views", "/views/none" + cmsPath, lean + lean + cmsPath, lean + "/.." + cmsPath, "/%76iews/lean" + cmsPath} {
		resp, body := f.get(path)
		if st := statusOf(t, body); resp.StatusCode != http.StatusNotFound || st.Reason != metav1.StatusReasonNotFound ||
			!strings.Contains(st.Message, "lean") {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		req, err := http.NewRequestWithContext(t.Context(), method, f.insecure+lean+cmsPath, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		st := statusOf(t, bodyOf(t, resp))
		if resp.StatusCode != http.StatusMethodNotAllowed || st.Reason != metav1.StatusReasonMethodNotAllowed ||
			!strings.Contains(st.Message, "without "+lean) || resp.Header.Get("Allow") == "" {
			t.Errorf("%s: %s %+v", method, resp.Status, st)
		}
	}
	for _, r := range f.up.All() {
		if strings.Contains(r.Path, "views") {
			t.Errorf("kube-apiserver got %s", r.Path)
		}
	}
}

// statusOf reads a Status.
func statusOf(t *testing.T, body string) (st metav1.Status) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &st); err != nil || st.Kind != "Status" {
		t.Fatalf("%v: no Status: %.300s", err, body)
	}
	return st
}

// dataless is a view without the data of ConfigMaps, except of those with the label keep.
var dataless = view.Config{Name: "dataless", Drop: []view.Drop{
	{Fields: []view.Field{"data"}, Resources: []view.Resource{"configmaps"}, LabelSelector: "!keep"}}}

// A configured view has its own form of a lane: lists, gets and watches lack its fields, beside
// whole ones, and kube-apiserver has one watch of all.
func TestViewTrims(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) {
		o.View.Views, o.AdminPort = view.Configs{dataless}, proxy.AnyPort
	})
	lists := func() float64 {
		return f.viewMetric("watchfan_view_requests_total", `view="dataless"`, `verb="list"`)
	}
	f.cms.Put("ns", "a", "secret")
	f.cms.Put("ns", "b", "kept", "keep", "1")
	w, whole := f.watch("/views/dataless%s", anyState), f.watch(anyState)
	w.Await(3)
	rv := f.cms.Put("ns", "c", "secret")
	for _, w := range []*proxytest.Watcher{w, whole} {
		w.AwaitVersion(rv)
		wantStrings(t, "watch", w.Strings(), "ADDED ns/a 101", "ADDED ns/b 102", "END 102", "ADDED ns/c 103")
	}
	var sent float64
	f.until("end of the count", func() bool { // which follows what is written
		before := f.viewMetric("watchfan_view_sent_bytes_total", `view="dataless"`)
		time.Sleep(50 * time.Millisecond)
		sent = f.viewMetric("watchfan_view_sent_bytes_total", `view="dataless"`)
		return sent == before && sent > 0
	})
	cut := regexp.MustCompile(`,"data":{"v":"secret"}`)
	for _, path := range []string{cmsPath + "?resourceVersion=0", cmsPath, "/api/v1/namespaces/ns/configmaps/a?resourceVersion=0",
		"/api/v1/namespaces/ns/configmaps/b", "/apis/ex.io/v1/foos?resourceVersion=0"} {
		_, want := f.get(path + strings.Repeat("?resourceVersion=0", 1-min(1, strings.Count(path, "?"))))
		got, body := f.get("/views/dataless" + path)
		want = cut.ReplaceAllString(want, "")
		if got.StatusCode != http.StatusOK || body != want || strings.Contains(body, "secret") {
			t.Errorf("%s: %s %s\nwant %s", path, got.Status, body, want)
		}
		sent += float64(len(body))
	}
	if got := f.viewMetric("watchfan_view_sent_bytes_total", `view="dataless"`); got != sent {
		t.Errorf("watchfan_view_sent_bytes_total is %v, want %v", got, sent)
	}
	if n := f.viewMetric("watchfan_view_watchers", `view="dataless"`); n != 1 {
		t.Errorf("watchfan_view_watchers is %v, want 1", n)
	}
	if n := lists(); n != 3 {
		t.Errorf("watchfan_view_requests_total is %v, want 3 lists", n)
	}
	if n := f.up.Open(proxytest.WatchList); n != 2 { // of ConfigMaps and of Foos
		t.Errorf("%d watches upstream, want 2", n)
	}
	f.passed(0)
}

// A view whose fields can't be left out of protobuf falls to the next clause. Without one, 406 says
// so.
func TestViewEncodings(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) { o.View.Views = view.Configs{{Name: "json", Drop: dataless.Drop}} })
	f.cms.Put("ns", "a", "secret")
	const protobuf = "application/vnd.kubernetes.protobuf"
	for _, accept := range []string{protobuf + ",application/json", protobuf + ", */*", "application/json;drop=metadata.managedFields"} {
		resp, body := f.get("/views/json"+cmsPath, "Accept", accept)
		if resp.StatusCode != http.StatusOK || strings.Contains(body, "secret") || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s %s", accept, resp.Status, body)
		}
	}
	resp, body := f.get("/views/json"+cmsPath, "Accept", protobuf)
	if st := statusOf(t, body); resp.StatusCode != http.StatusNotAcceptable || st.Reason != metav1.StatusReasonNotAcceptable ||
		!strings.Contains(st.Message, "application/json") {
		t.Errorf("%s: %s", resp.Status, body)
	}
	f.passed(0)
}

// A small answer of kube-apiserver lacks the view's fields too. Any other is whole.
func TestViewPassesThrough(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) {
		o.View.Views = view.Configs{{Name: "through", Drop: dataless.Drop}}
		o.Cached.Exclude = []string{"configmaps"}
	})
	f.cms.Put("ns", "a", "secret")
	f.cms.Put("ns", "b", "kept", "keep", "1")
	for path, cut := range map[string]bool{cmsPath: true, "/api/v1/namespaces/ns/configmaps": true, "/api/v1/nothing": false,
		"/apis/ex.io/v1/foos": false, "/apis": false} {
		want, whole := f.get(path)
		got, body := f.get("/views/through" + path)
		wantBody := strings.ReplaceAll(whole, `,"data":{"v":"secret"}`, "")
		if got.StatusCode != want.StatusCode || body != wantBody || (body != whole) != cut || got.ContentLength != int64(len(body)) {
			t.Errorf("%s: %s, %d bytes, %s\nwant %s", path, got.Status, got.ContentLength, body, wantBody)
		}
	}
	f.cms.Put("ns", "large", strings.Repeat("secret", 100_000))
	_, whole := f.get(cmsPath)
	if _, body := f.get("/views/through" + cmsPath); body != whole {
		t.Errorf("a large list has %d bytes, want %d", len(body), len(whole))
	}
	w := f.watch("/views/through%s", anyState)
	w.Await(1)
	if n := f.up.Count(proxytest.Client); n < 10 {
		t.Errorf("%d requests were passed through", n)
	}
}

// viewMetric returns the sum of the samples of a metric that have all the labels.
func (f *fan) viewMetric(name string, labels ...string) float64 {
	f.t.Helper()
	_, _, text := f.askAdmin("/metrics", "")
	return proxytest.SumMetric(text, name, labels...)
}

// The audit log has the path with the view, of reads and of refusals.
func TestViewAudit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.log")
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) {
		o.Audit.AuditLogPath, o.Audit.AuditLogMode = file, "blocking"
	})
	f.cms.Put("ns", "a", "1")
	want := []string{"/views/lean" + cmsPath + "?resourceVersion=0", "/views/none" + cmsPath, "/views/lean/api/v1/namespaces/ns/pods/p/exec"}
	for _, uri := range want {
		f.get(uri)
	}
	f.until("the audit log", func() bool {
		log, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		var got []string
		for line := range bytes.Lines(log) {
			var event struct{ RequestURI string }
			if err := json.Unmarshal(line, &event); err != nil {
				t.Fatal(err)
			}
			got = append(got, event.RequestURI)
		}
		return slices.Equal(got, want)
	})
}
