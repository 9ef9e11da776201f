package upstream

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func kindInfo(group, version, kind string, namespaced bool) ResourceInfo {
	return ResourceInfo{GVR: schema.GroupVersionResource{Group: group, Version: version}, Kind: kind,
		Namespaced: namespaced}
}

// fieldCases are a kind of each sort. The labels of other kinds are in TestFieldsOfBothEncodings.
var fieldCases = []struct {
	info   ResourceInfo
	labels []string // besides metadata.name
}{
	{kindInfo("", "v1", "Pod", true), []string{"metadata.namespace", "spec.nodeName", "spec.host", "spec.restartPolicy",
		"spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP",
		"status.podIPs", "status.nominatedNodeName"}},
	{kindInfo("", "v1", "Node", false), []string{"spec.unschedulable"}},
	{kindInfo("", "v1", "Secret", true), []string{"metadata.namespace", "type"}},
	{kindInfo("", "v1", "Event", true), []string{"metadata.namespace", "involvedObject.kind", "involvedObject.namespace",
		"involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
		"involvedObject.fieldPath", "reason", "type", "reportingComponent", "source"}},
	{kindInfo("batch", "v1", "Job", true), []string{"metadata.namespace", "status.successful"}},
	{kindInfo("certificates.k8s.io", "v1beta1", "PodCertificateRequest", true), []string{"spec.signerName", "spec.podName", "spec.nodeName"}},
	{kindInfo("", "v1", "ConfigMap", true), []string{"metadata.namespace"}},
	{kindInfo("", "v1", "PersistentVolume", false), nil},
	{kindInfo("ex.io", "v1", "Pod", true), []string{"metadata.namespace"}},
	{kindInfo("ex.io", "v1", "ClusterFoo", false), nil},
}

func TestFieldSelector(t *testing.T) {
	var all []string
	for _, c := range fieldCases {
		all = append(all, c.labels...)
	}
	all = append(all, "metadata.name", "name", "status.replicas", "spec.leaseName", "metadata.labels",
		"", "spec.nodename")
	for _, c := range fieldCases {
		for _, label := range all {
			want := label == "metadata.name" || slices.Contains(c.labels, label)
			sel, ok := FieldSelector(c.info, fields.OneTermNotEqualSelector(label, "v"))
			if ok != want {
				t.Errorf("%s %s: got %v, want %v", c.info.Kind, label, ok, want)
			}
			if !ok {
				continue
			}
			if label == "spec.host" {
				label = "spec.nodeName"
			}
			if got := sel.String(); got != label+"!=v" {
				t.Errorf("%s: got %s", label, got)
			}
		}
		if sel, ok := FieldSelector(c.info, fields.Everything()); !ok || !sel.Empty() {
			t.Errorf("%s: empty selector: got %v %v", c.info.Kind, sel, ok)
		}
	}
	sel, ok := FieldSelector(fieldCases[0].info, fields.ParseSelectorOrDie(`spec.host=n\,1,metadata.name=x`))
	if !ok || sel.String() != `metadata.name=x,spec.nodeName=n\,1` {
		t.Errorf("several terms: got %v %v", sel, ok)
	}
	if _, ok := FieldSelector(fieldCases[0].info, fields.ParseSelectorOrDie("spec.nodeName=n,spec.x=1")); ok {
		t.Error("one bad term of two: accepted")
	}
}

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
	for gk := range builtinFields {
		if MayBeCustom(gk.Group) {
			t.Errorf("%s is built in", gk)
		}
	}
}
