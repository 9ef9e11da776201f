package upstream

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// TestBuilds: builds differ if kube-apiserver's version or the schema of the group version differs.
// An answer that is missing is no difference.
func TestBuilds(t *testing.T) {
	answers := map[string]string{}
	answer := func(_ auth.Identity, path string, _ []byte) (int, string, error) {
		if text, ok := answers[path]; ok {
			return http.StatusOK, text, nil
		}
		return http.StatusForbidden, "{}", nil
	}
	ofVersion := func(group string) ResourceInfo {
		return ResourceInfo{GVR: schema.GroupVersionResource{Group: group, Version: "v1"}}
	}
	b := NewBuilds(&proxytest.FakeUpstream[auth.Identity]{Answer: answer}, proxytest.Guard())
	ask := func(version, apps, core string) (ofApps, ofCore Build) {
		answers["/version"] = version
		answers["/openapi/v3"] = `{"paths":{"api/v1":{"serverRelativeURL":"` +
			core + `"},"apis/apps/v1":{"serverRelativeURL":"` + apps + `"}}}`
		return b.Of(t.Context(), ofVersion("apps")),
			b.Of(t.Context(), ofVersion(""))
	}
	apps, core := ask("1", "a", "c")
	f := func(version, ofApps, ofCore string, appsDiffer, coreDiffers bool) {
		t.Helper()
		a, c := ask(version, ofApps, ofCore)
		if a.Differs(apps) != appsDiffer || c.Differs(core) != coreDiffers {
			t.Errorf("%s %s %s: apps/v1 %t, v1 %t", version, ofApps, ofCore, a.Differs(apps), c.Differs(core))
		}
	}
	f("1", "a", "c", false, false)
	f("2", "a", "c", true, true)
	f("1", "b", "c", true, false)
	f("1", "a", "d", false, true)
	clear(answers)
	a := b.Of(t.Context(), ofVersion("apps"))
	if a != (Build{}) || a.Differs(apps) || apps.Differs(a) {
		t.Errorf("nothing is told: %v", a)
	}
	if a.Or(apps) != apps || apps.Or(a) != apps || apps.Or(core) != apps || apps.String() == core.String() {
		t.Errorf("%v or %v", apps, core)
	}
}
