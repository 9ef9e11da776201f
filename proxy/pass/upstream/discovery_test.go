package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// answering is a kube-apiserver with one answer.
func answering(code int, body string, err error) *proxytest.FakeUpstream[auth.Identity] {
	return &proxytest.FakeUpstream[auth.Identity]{
		Answer: func(auth.Identity, string, []byte) (int, string, error) { return code, body, err },
	}
}

// fakeAPI is the discovery of a kube-apiserver.
type fakeAPI map[string]string

func (api fakeAPI) answer(id auth.Identity, path string, _ []byte) (int, string, error) {
	if id.Kind != auth.KindOwn {
		return 403, "", nil
	}
	switch text := api[path]; text {
	case "":
		if path == "/apis" {
			return 200, api.groups(), nil
		}
		return 404, "404 page not found\n", nil
	case "down":
		return 0, "", errors.New("connection refused")
	case "503":
		return 503, "", nil
	default:
		return 200, text, nil
	}
}

// groups returns the list of the API groups, if api has no list of its own.
func (api fakeAPI) groups() string {
	var groups []string
	for path := range api {
		if parts := strings.Split(path, "/"); len(parts) == 4 {
			groups = append(groups, fmt.Sprintf(`{"name":%q,"versions":[{"version":%q}]}`, parts[2], parts[3]))
		}
	}
	return `{"kind":"APIGroupList","groups":[` + strings.Join(groups, ",") + `]}`
}

func resourceList(resources ...string) string {
	for i, r := range resources {
		name, kind, _ := strings.Cut(r, " ")
		resources[i] = fmt.Sprintf(`{"name":%q,"kind":%q,"namespaced":true,"verbs":["get","list","watch"]}`, name, kind)
	}
	return `{"kind":"APIResourceList","apiVersion":"v1","resources":[` + strings.Join(resources, ",") + `]}`
}

func newTestDiscovery(api fakeAPI) (*Discovery, *proxytest.FakeUpstream[auth.Identity], *bytes.Buffer) {
	up := &proxytest.FakeUpstream[auth.Identity]{Answer: api.answer}
	var log bytes.Buffer
	return NewDiscovery(up, exchange.NewGuard(metrics.NewSet(), slog.New(slog.NewTextHandler(&log, nil)))), up, &log
}

var (
	pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	foos = schema.GroupVersionResource{Group: "ex.io", Version: "v1", Resource: "foos"}
)

func TestDiscoveryLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, up, _ := newTestDiscovery(fakeAPI{
			"/api/v1": `{"kind":"APIResourceList","resources":[
				{"name":"pods","kind":"Pod","namespaced":true,"verbs":["create","get","list","watch"]},
				{"name":"pods/status","kind":"Pod","namespaced":true,"verbs":["get","list","watch"]},
				{"name":"nodes","kind":"Node","namespaced":false,"verbs":["list","watch"]},
				{"name":"componentstatuses","kind":"ComponentStatus","verbs":["get","list"]}]}`,
			"/apis/ex.io/v1": resourceList("foos Foo"),
		})
		f := func(gvr schema.GroupVersionResource, want ResourceInfo, wantOK bool) {
			t.Helper()
			if got, ok := d.Lookup(t.Context(), gvr); got != want || ok != wantOK {
				t.Errorf("%v: got %+v %v, want %+v %v", gvr, got, ok, want, wantOK)
			}
		}
		core := schema.GroupVersion{Version: "v1"}
		f(pods, ResourceInfo{pods, "Pod", true, true, nil}, true)
		f(foos, ResourceInfo{foos, "Foo", true, true, nil}, true)
		f(core.WithResource("nodes"), ResourceInfo{core.WithResource("nodes"), "Node", false, true, nil}, true)
		f(core.WithResource("componentstatuses"), ResourceInfo{core.WithResource("componentstatuses"),
			"ComponentStatus", false, false, nil}, true)
		f(core.WithResource("pods/status"), ResourceInfo{}, false)
		f(core.WithResource("nosuch"), ResourceInfo{}, false)
		if got := up.Count(); got != 3 { // one of them is for the groups
			t.Errorf("requests: got %d, want 3", got)
		}
		time.Sleep(DiscoveryTTL)
		f(pods, ResourceInfo{pods, "Pod", true, true, nil}, true)
		if got := up.Count(); got != 4 {
			t.Errorf("requests after discoveryTTL: got %d, want 4", got)
		}
	})
}

func TestDiscoveryNoticesNewResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeAPI{}
		d, up, _ := newTestDiscovery(api)
		for range 100 {
			if _, ok := d.Lookup(t.Context(), foos); ok {
				t.Fatal("found before it exists")
			}
		}
		api["/apis/ex.io/v1"] = resourceList("bars Bar")
		time.Sleep(missTTL)
		for range 100 {
			if _, ok := d.Lookup(t.Context(), foos); ok {
				t.Fatal("found before it exists")
			}
		}
		api["/apis/ex.io/v1"] = resourceList("bars Bar", "foos Foo")
		time.Sleep(missTTL)
		if _, ok := d.Lookup(t.Context(), foos); !ok {
			t.Error("not found after it exists")
		}
		if got := up.Count(); got != 4 { // two of them are for the groups
			t.Errorf("requests: got %d, want 4", got)
		}

		// It is removed. Discovery notices that after Forget.
		delete(api, "/apis/ex.io/v1")
		if _, ok := d.Lookup(t.Context(), foos); !ok {
			t.Error("not found while it is believed")
		}
		d.Forget(foos.GroupVersion())
		if _, ok := d.Lookup(t.Context(), foos); ok {
			t.Error("found after forget")
		}
	})
}

// A client that asks for ever new group versions costs bounded memory.
func TestDiscoveryBoundsMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := newTestDiscovery(fakeAPI{"/api/v1": resourceList("pods Pod")})
		d.Lookup(t.Context(), pods)
		for i := range 10 * maxUnknownVersions {
			d.Lookup(t.Context(), schema.GroupVersionResource{Group: fmt.Sprintf("g%d", i),
				Version: "v1", Resource: "x"})
			if i%1000 == 0 {
				time.Sleep(missTTL)
			}
		}
		if got := len(d.versions); got > maxUnknownVersions+1 {
			t.Errorf("got %d group versions", got)
		}
		if _, ok := d.Lookup(t.Context(), pods); !ok {
			t.Error("pods are forgotten")
		}
	})
}

func TestDiscoveryFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeAPI{"/apis/ex.io/v1": resourceList("foos Foo")}
		d, up, log := newTestDiscovery(api)
		good := api["/apis/ex.io/v1"]
		d.Lookup(t.Context(), foos)
		for _, bad := range []string{"down", "503", "{", `{"kind":"Status"}`, "null"} {
			api["/apis/ex.io/v1"] = bad
			time.Sleep(DiscoveryTTL)
			if _, ok := d.Lookup(t.Context(), foos); !ok {
				t.Errorf("%s: a known resource is gone", bad)
			}
			if _, ok := d.Lookup(t.Context(), foos.GroupVersion().WithResource("bars")); ok {
				t.Errorf("%s: an unknown resource exists", bad)
			}
		}
		before := up.Count()
		for range 100 {
			d.Lookup(t.Context(), foos)
		}
		if got := up.Count(); got != before {
			t.Errorf("asked %d more times at once", got-before)
		}
		api["/apis/ex.io/v1"] = good
		time.Sleep(discoveryRetry)
		d.Lookup(t.Context(), foos)
		if got := strings.Count(log.String(), "\n"); got != 2 {
			t.Errorf("got %d log lines, want 2:\n%s", got, log)
		}
	})
}

// A kube-apiserver that hangs is waited for once in a while, not by each read of a known resource.
func TestDiscoveryHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, up, _ := newTestDiscovery(fakeAPI{"/apis/ex.io/v1": resourceList("foos Foo")})
		defer d.End()
		d.Lookup(t.Context(), foos)
		time.Sleep(DiscoveryTTL)
		up.Delay = time.Hour
		for _, wait := range []time.Duration{discoveryTimeout / 2, 0, 0} {
			ctx, cancel := context.WithTimeout(t.Context(), discoveryTimeout/2)
			began := time.Now()
			if _, ok := d.Lookup(ctx, foos); !ok || time.Since(began) != wait {
				t.Errorf("%t after %s, want the resource after %s", ok, time.Since(began), wait)
			}
			cancel()
		}
		time.Sleep(discoveryRetry)
		synctest.Wait()
		up.Delay = 0
		before := up.Count()
		if _, ok := d.Lookup(t.Context(), foos); !ok || up.Count() != before+1 {
			t.Errorf("%t after %d requests, want the resource after one", ok, up.Count()-before)
		}
	})
}

func TestDiscoveryResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := newTestDiscovery(fakeAPI{
			"/api/v1": resourceList("pods Pod"),
			"/apis/apps": `{"kind":"APIGroup","name":"apps","versions":[{"version":"v2"},{"version":"v1"}],` +
				`"preferredVersion":{"version":"v2"}}`,
			"/apis/apps/v1": resourceList("deployments Deployment", "old Old"),
			"/apis/apps/v2": resourceList("deployments Deployment"),
			"/apis/ex.io": `{"kind":"APIGroup","versions":[{"version":"v1"}],` +
				`"preferredVersion":{"version":"v1"}}`,
			"/apis/ex.io/v1": `{"kind":"APIResourceList","resources":[{"name":"foos","kind":"Foo",` +
				`"verbs":["list"]}]}`,
			"/apis/broken.io/v1":   "503",
			"/apis/unreachable.io": "down",
		})
		f := func(s, want string) {
			t.Helper()
			gvr, err := d.Resolve(t.Context(), s)
			got := fmt.Sprintf("%s/%s/%s", gvr.Group, gvr.Version, gvr.Resource)
			if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%q: got %s, want %s", s, got, want)
			}
		}
		const usage = "want RESOURCE, RESOURCE.GROUP, RESOURCE.VERSION.GROUP or GROUP/VERSION/RESOURCE"
		f("pods", "/v1/pods")
		f("v1/pods", "/v1/pods")
		f("deployments.apps", "apps/v2/deployments")
		f("deployments.v1.apps", "apps/v1/deployments")
		f("apps/v1/deployments", "apps/v1/deployments")
		f("old.apps", "apps/v1/old")
		f("nosuch", `resolve "nosuch": kube-apiserver has no resource nosuch in v1: not found`)
		f("nosuch.apps", `resolve "nosuch.apps": apps has no resource nosuch: not found`)
		f("x.nosuch.io", `resolve "x.nosuch.io": get /apis/nosuch.io: not found`)
		f("foos.ex.io", `resolve "foos.ex.io": ex.io/v1: cannot be listed and watched`)
		f("broken.io/v1/x", `resolve "broken.io/v1/x": broken.io/v1: get /apis/broken.io/v1: Service Unavailable`)
		f("x.unreachable.io", `resolve "x.unreachable.io": connection refused`)
		for _, s := range []string{"", "/", "a/b/c/d", "/pods", "v1/", "a/../b", "Pods"} {
			f(s, fmt.Sprintf("resolve %q: %s", s, usage))
		}
	})
}

func unknown(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: fmt.Sprintf("g%d.example", i), Version: "v1", Resource: "things"}
}

// Group versions that do not exist cost one request every missTTL, for any number of them. A new
// group version is noticed within that time.
func TestUnknownGroupsShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeAPI{"/api/v1": resourceList("pods Pod")}
		d, up, _ := newTestDiscovery(api)
		up.Delay = 100 * time.Millisecond
		for round := 1; round <= 3; round++ {
			var clients sync.WaitGroup
			for i := range 200 {
				clients.Go(func() {
					if _, ok := d.Lookup(t.Context(), unknown(i)); ok {
						t.Errorf("%v is found", unknown(i))
					}
				})
			}
			clients.Wait()
			if got := up.Count(); got != round {
				t.Errorf("round %d: %d requests, want one each", round, got)
			}
			time.Sleep(missTTL)
		}
		api["/apis/g7.example/v1"] = resourceList("things Thing")
		var clients sync.WaitGroup
		for range 50 {
			clients.Go(func() {
				if _, ok := d.Lookup(t.Context(), unknown(7)); !ok {
					t.Error("a new group is not found")
				}
			})
		}
		clients.Wait()
		if got := up.Count(); got != 5 {
			t.Errorf("%d requests, want one more for the groups and one for the group", got)
		}
	})
}

// If kube-apiserver does not list its groups, a few group versions are requested without a list.
func TestUnknownGroupsWithoutList(t *testing.T) {
	for _, list := range []string{"503", "down", "null", `{"kind":"Status"}`} {
		synctest.Test(t, func(t *testing.T) {
			d, up, _ := newTestDiscovery(fakeAPI{"/apis": list, "/apis/ex.io/v1": resourceList("foos Foo")})
			if _, ok := d.Lookup(t.Context(), foos); !ok {
				t.Errorf("%s: a group that exists is not found", list)
			}
			for i := range 200 {
				d.Lookup(t.Context(), unknown(i))
			}
			if got := up.Count(); got != 1+mostGuesses {
				t.Errorf("%s: %d requests, want %d", list, got, 1+mostGuesses)
			}
			time.Sleep(DiscoveryTTL)
			if _, ok := d.Lookup(t.Context(), foos); !ok {
				t.Errorf("%s: a known group is no longer found", list)
			}
		})
	}
}
