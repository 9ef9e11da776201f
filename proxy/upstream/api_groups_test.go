package upstream

import "testing"

func TestMayBeCustom(t *testing.T) {
	for group, want := range map[string]bool{
		"": false, "apps": false, "batch": false, "coordination.k8s.io": false, "apiextensions.k8s.io": false,
		"rbac.authorization.k8s.io": false, "ex.io": true, "gateway.networking.k8s.io": true,
		"snapshot.storage.k8s.io": true, "metrics.k8s.io": true,
	} {
		if got := MayBeCustom(group); got != want {
			t.Errorf("%q: got %t, want %t", group, got, want)
		}
	}
	for gvk := range builtinFields {
		if MayBeCustom(gvk.Group) {
			t.Errorf("%s is built in", gvk)
		}
	}
}
