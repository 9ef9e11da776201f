package cached

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestExcluded(t *testing.T) {
	f := func(name, excluded, others string) {
		t.Helper()
		if !excludedName.MatchString(name) {
			t.Errorf("%s: not a name", name)
		}
		o := Options{Exclude: []string{"nosuch", name}}
		for want, all := range map[bool]string{true: excluded, false: others} {
			for s := range strings.FieldsSeq(all) {
				gvr := schema.GroupVersionResource{}
				parts := strings.Split(s, "/")
				gvr.Group, gvr.Version, gvr.Resource = parts[0], parts[1], parts[2]
				if got := o.excluded(gvr); got != want {
					t.Errorf("%s, %s: got %v", name, s, got)
				}
			}
		}
	}
	f("pods", "/v1/pods metrics.k8s.io/v1beta1/pods", "/v1/nodes")
	f("v1/pods", "/v1/pods", "metrics.k8s.io/v1beta1/pods")
	f("deployments.apps", "apps/v1/deployments apps/v1beta2/deployments",
		"extensions/v1beta1/deployments apps/v1/replicasets")
	f("deployments.v1.apps", "apps/v1/deployments apps/v1beta2/deployments", "extensions/v1beta1/deployments")
	f("apps/v1/deployments", "apps/v1/deployments apps/v1beta2/deployments", "/v1/deployments apps/v1/replicasets")
	f("*.cilium.io", "cilium.io/v2/ciliumnodes cilium.io/v2alpha1/x", "isovalent.cilium.io/v2/x /v1/pods")
	for _, name := range []string{"*", "*.", "*.*", "po*", "*/v1/pods", "Pods", "", "apps/*"} {
		if excludedName.MatchString(name) {
			t.Errorf("%q is taken for a name", name)
		}
	}
}
