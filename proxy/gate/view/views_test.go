package view

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// enter enters a target, and returns the view's name, the target that is left, and the refusal.
func enter(target string) (name, rest string, code int32, x *exchange.Exchange) {
	x = &exchange.Exchange{Method: http.MethodGet, Target: target}
	v, st := New(&Options{}, metrics.NewSet()).Enter(x)
	if st != nil {
		code = st.Code
	}
	return v.Name(), x.Target, code, x
}

// The prefix of a view is taken from the target, and nothing else is changed.
func TestEnter(t *testing.T) {
	for target, want := range map[string]string{
		"/views/lean":                              "/",
		"/views/lean/":                             "/",
		"/views/lean?timeout=32s":                  "/?timeout=32s",
		"/views/lean/api/":                         "/api/",
		"/views/lean/api/v1/pods?watch=1&a=%zz#x":  "/api/v1/pods?watch=1&a=%zz#x",
		"/views/lean/api/v1/namespaces/views/pods": "/api/v1/namespaces/views/pods",
		"/views/lean/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode": "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
		"http://h:1/views/lean/api?x=/views/lean":                                  "http://h:1/api?x=/views/lean",
		"h/views/lean/x://h/views/lean/x":                                          "h/views/lean/x://h/x",
		"https://views/views/lean/views.k8s.io":                                    "https://views/views.k8s.io",
	} {
		name, rest, code, x := enter(target)
		if name != Lean || rest != want || code != 0 || x.URI() != target {
			t.Errorf("%s: view %q, target %s, code %d, asked %s, want %s", target, name, rest, code, x.URI(), want)
		}
	}
	for _, target := range []string{"/", "*", "/api/v1/pods?x=/views/lean/", "/api/views/lean", "/viewslean", "/view/s", "/%2", "/a/views",
		"/api/v1/namespaces/views/pods", "/apis/views/v1/x"} {
		if name, rest, code, x := enter(target); name != "" || rest != target || code != 0 || x.URI() != target {
			t.Errorf("%s: view %q, target %s, code %d, want it as it is", target, name, rest, code)
		}
	}
}

// Each path that some reader may take for a path of a view, and that is not one in every reading,
// gets 404.
func TestEnterRefuses(t *testing.T) {
	for _, target := range []string{
		"/views", "/views/", "/views//", "/views//lean/api", "/views/none/api", "/views/LEAN/api", "/views/lean%2fapi",
		"/views/le%61n/api", "/%76iews/lean/api", "/views%2flean/api", "//views/lean/api", "/./views/lean/api", "/../views/lean/api",
		"/x/../views/lean/api", "/%2e%2e/views/lean/api", "/views/lean/views/lean/api", "/views/lean/views", "/views/lean/%76iews/lean",
		"/views/lean/../../api", "/views/lean/..", "/views/lean/../lean/api", "/views/lean/%2e%2e/api", "/views/lean/a/%2e%2e/api",
		"/views/lean/./api", "/views/lean//api", "/views/lean/api//v1", "/views/lean/api%2fv1", "/views/lean/..%2f..%2fapi",
		"/views/../api/v1/pods", "/views/lean/../../views/lean", "http://h/views/none/api", "http://h//views/lean/api", "/views/.", "/views/..",
		"/views/lean/.//views/lean/api",
	} {
		if name, rest, code, _ := enter(target); name != "" || rest != target || code != http.StatusNotFound {
			t.Errorf("%s: view %q, target %s, code %d, want 404", target, name, rest, code)
		}
	}
}

// FuzzEnter: whatever is not refused leads outside of the views in every reading, and differs from
// what the client sent by the prefix alone.
func FuzzEnter(f *testing.F) {
	for _, seed := range []string{"/views/lean/api/v1/pods?watch=1", "/views/lean/../api", "/%76iews/lean", "//views/x", "/api", "http://h/views/lean/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, target string) {
		name, rest, code, x := enter(target)
		if x.URI() != target || (code != 0 || name == "") && rest != target {
			t.Fatalf("%q became %q", target, rest)
		}
		sent, ok := exchange.CutTarget(rest)
		if code != 0 || !ok {
			return
		}
		for range 3 { // as often as servers in a row might
			if leads := strings.HasPrefix(path.Clean("/"+sent.Path)+"/", root+"/"); leads && name != "" {
				t.Fatalf("%q in view %s leads to %q", target, name, sent.Path)
			}
			if sent.Path, _ = url.PathUnescape(sent.Path); name == "" {
				break // an escape of an escape is not below /views for kube-apiserver
			}
		}
		if name != "" && !without(target, root+"/"+name, rest) {
			t.Fatalf("%q became %q", target, rest)
		}
	})
}

// without reports whether rest is target without the prefix in one place. A path that ends there becomes
// "/".
func without(target, prefix, rest string) bool {
	for i := range target {
		if behind, ok := strings.CutPrefix(target[i:], prefix); ok && (rest == target[:i]+behind || rest == target[:i]+"/"+behind) {
			return true
		}
	}
	return false
}
