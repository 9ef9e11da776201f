package view_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

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

func withDataless(o *proxy.Options) { o.View.Views = view.Configs{dataless} }

// The API below a view is that of kube-apiserver, read-only. No path of a view reaches
// kube-apiserver with its prefix.
func TestServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := bubble.Start(t, proxytest.NewBubbleServer(t))
		p.CMs.Put("ns", "a", "1")
		const lean = "/views/lean"
		for _, path := range []string{bubble.CMs + "?resourceVersion=0", bubble.CMs + "?resourceVersion=0&pretty=1", "/apis", "/api/v1", "/version"} {
			want, wantBody := p.Get(path)
			got, body := p.Get(lean + path)
			if got.StatusCode != want.StatusCode || len(body) != len(wantBody) || got.StatusCode == http.StatusNotFound && path != "/version" {
				t.Errorf("%s: %s %q, want %s %q", path, got.Status, body, want.Status, wantBody)
			}
		}
		w := p.Watch("%s%s", lean, bubble.AnyState)
		w.Await(2)
		p.CMs.Put("ns", "b", "1")
		proxytest.WantStrings(t, "watch", proxytest.Strings(w.Await(3)), "ADDED ns/a 101", "END 101", "ADDED ns/b 102")

		for _, path := range []string{"/views", "/views/none" + bubble.CMs, lean + lean + bubble.CMs, lean + "/.." + bubble.CMs, "/%76iews/lean" + bubble.CMs} {
			resp, body := p.Get(path)
			if st := statusOf(t, body); resp.StatusCode != http.StatusNotFound || st.Reason != metav1.StatusReasonNotFound ||
				!strings.Contains(st.Message, "lean") {
				t.Errorf("%s: %s %s", path, resp.Status, body)
			}
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			resp, body := p.Send(bubble.Request{Method: method, Target: lean + bubble.CMs, Body: "{}"}).Read()
			if st := statusOf(t, body); resp.StatusCode != http.StatusMethodNotAllowed || st.Reason != metav1.StatusReasonMethodNotAllowed ||
				!strings.Contains(st.Message, "without "+lean) || resp.Header.Get("Allow") == "" {
				t.Errorf("%s: %s %s", method, resp.Status, body)
			}
		}
		for _, r := range p.Up.All() {
			if strings.Contains(r.Path, "views") {
				t.Errorf("kube-apiserver got %s", r.Path)
			}
		}
	})
}

// A configured view has its own form of a lane: lists, gets and watches lack its fields, beside
// whole ones, and kube-apiserver has one watch of all.
func TestServedTrims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := bubble.Start(t, proxytest.NewBubbleServer(t), withDataless)
		metric := func(name string, labels ...string) float64 {
			synctest.Wait()
			_, text := p.Admin("/metrics")
			return proxytest.SumMetric(text, name, append(labels, `view="dataless"`)...)
		}
		p.CMs.Put("ns", "a", "secret")
		p.CMs.Put("ns", "b", "kept", "keep", "1")
		w, whole := p.Watch("/views/dataless%s", bubble.AnyState), p.Watch(bubble.AnyState)
		w.Await(3)
		p.CMs.Put("ns", "c", "secret")
		for _, w := range []*proxytest.Watcher{w, whole} {
			proxytest.WantStrings(t, "watch", proxytest.Strings(w.Await(4)), "ADDED ns/a 101", "ADDED ns/b 102", "END 102", "ADDED ns/c 103")
		}
		for _, e := range w.Events() {
			if strings.Contains(e.Raw, "secret") {
				t.Errorf("got %s", e.Raw)
			}
		}
		sent := metric("watchfan_view_sent_bytes_total")
		cut := regexp.MustCompile(`,"data":{"v":"secret"}`)
		for _, path := range []string{bubble.CMs + "?resourceVersion=0", bubble.CMs, "/api/v1/namespaces/ns/configmaps/a?resourceVersion=0",
			"/api/v1/namespaces/ns/configmaps/b", "/apis/ex.io/v1/foos?resourceVersion=0"} {
			_, want := p.Get(path + strings.Repeat("?resourceVersion=0", 1-min(1, strings.Count(path, "?"))))
			got, body := p.Get("/views/dataless" + path)
			want = cut.ReplaceAllString(want, "")
			if got.StatusCode != http.StatusOK || body != want || strings.Contains(body, "secret") {
				t.Errorf("%s: %s %s\nwant %s", path, got.Status, body, want)
			}
			sent += float64(len(body))
		}
		if got := metric("watchfan_view_sent_bytes_total"); got != sent || sent < 1000 {
			t.Errorf("watchfan_view_sent_bytes_total is %v, want %v", got, sent)
		}
		if n := metric("watchfan_view_watchers"); n != 1 {
			t.Errorf("watchfan_view_watchers is %v, want 1", n)
		}
		if n := metric("watchfan_view_requests_total", `verb="list"`); n != 3 {
			t.Errorf("watchfan_view_requests_total is %v, want 3 lists", n)
		}
		if n := p.Up.Open(proxytest.WatchList); n != 2 { // of ConfigMaps and of Foos
			t.Errorf("%d watches upstream, want 2", n)
		}
		p.Passed(0)
	})
}

// A view that can't be made in protobuf falls to the next clause. Without one, 406 says so.
func TestServedEncodings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		custom := view.Config{Name: "custom", Resources: []view.Part{{Resource: "foos", Keep: []view.Kept{"data"}}}}
		p := bubble.Start(t, proxytest.NewBubbleServer(t), func(o *proxy.Options) { o.View.Views = view.Configs{custom} })
		const protobuf, foos = "application/vnd.kubernetes.protobuf", "/views/custom/apis/ex.io/v1/foos"
		for _, accept := range []string{protobuf + ",application/json", protobuf + ", */*", "application/json;drop=metadata.managedFields"} {
			resp, body := p.Get(foos, "Accept", accept)
			if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %s %s", accept, resp.Status, body)
			}
		}
		resp, body := p.Get(foos, "Accept", protobuf)
		if st := statusOf(t, body); resp.StatusCode != http.StatusNotAcceptable || st.Reason != metav1.StatusReasonNotAcceptable ||
			!strings.Contains(st.Message, "in protobuf") || !strings.Contains(st.Message, "application/json") {
			t.Errorf("%s: %s", resp.Status, body)
		}
		p.Passed(0)
	})
}

// A small answer of kube-apiserver lacks the view's fields too. Any other is whole.
func TestServedByUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := bubble.Start(t, proxytest.NewBubbleServer(t), withDataless, func(o *proxy.Options) { o.Cached.Exclude = []string{"configmaps"} })
		p.CMs.Put("ns", "a", "secret")
		p.CMs.Put("ns", "b", "kept", "keep", "1")
		for path, cut := range map[string]bool{bubble.CMs: true, "/api/v1/namespaces/ns/configmaps": true, "/api/v1/nothing": false,
			"/apis/ex.io/v1/foos": false, "/apis": false} {
			want, whole := p.Get(path)
			got, body := p.Get("/views/dataless" + path)
			wantBody := strings.ReplaceAll(whole, `,"data":{"v":"secret"}`, "")
			if got.StatusCode != want.StatusCode || body != wantBody || (body != whole) != cut {
				t.Errorf("%s: %s, %s\nwant %s", path, got.Status, body, wantBody)
			}
		}
		p.CMs.Put("ns", "large", strings.Repeat("secret", 100_000))
		_, whole := p.Get(bubble.CMs)
		if _, body := p.Get("/views/dataless" + bubble.CMs); body != whole {
			t.Errorf("a large list has %d bytes, want %d", len(body), len(whole))
		}
		p.Watch("/views/dataless%s", bubble.AnyState).Await(1)
		if n := p.Up.Count(proxytest.Client); n < 10 {
			t.Errorf("%d requests were passed through", n)
		}
	})
}
