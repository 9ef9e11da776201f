package proxy

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/framing"
)

// kindFields are the field selectors that one kind has besides metadata.name.
type kindFields struct {
	selectable []framing.Field
	namespace  bool              // metadata.namespace is one of them
	alias      map[string]string // old labels and what they are called now
}

// defaultFields are those of every kind that is not in builtinFields: most
// built-in kinds, and custom resources. The selectableFields of a custom
// resource's definition are not among them; who selects by one is passed
// through.
var defaultFields = kindFields{namespace: true}

// builtinFields lists the kinds with field selectors of their own, as of
// Kubernetes 1.36: which labels there are is said in k8s.io/kubernetes
// pkg/apis/*/v*/conversion.go, what they select by in the strategy.go or
// storage.go of pkg/registry/*/*.
var builtinFields = map[schema.GroupVersionKind]kindFields{
	coreKind("Pod"): {
		namespace: true,
		alias:     map[string]string{"spec.host": "spec.nodeName"},
		selectable: []framing.Field{
			plainField("spec", "nodeName"),
			plainField("spec", "restartPolicy"),
			plainField("spec", "schedulerName"),
			plainField("spec", "serviceAccountName"),
			fieldAt("spec.hostNetwork", "false", []string{"spec", "hostNetwork"}),
			plainField("status", "phase"),
			plainField("status", "podIP"), // always the first of status.podIPs
			{Label: "status.podIPs"},      // accepted, and never filled
			plainField("status", "nominatedNodeName"),
		},
	},
	coreKind("Node"): {selectable: []framing.Field{
		fieldAt("spec.unschedulable", "false", []string{"spec", "unschedulable"}),
	}},
	coreKind("Namespace"): {selectable: []framing.Field{plainField("status", "phase")}},
	coreKind("ReplicationController"): {
		namespace:  true,
		selectable: []framing.Field{fieldAt("status.replicas", "0", []string{"status", "replicas"})},
	},
	coreKind("Secret"): {namespace: true, selectable: []framing.Field{plainField("type")}},
	coreKind("Service"): {namespace: true, selectable: []framing.Field{
		plainField("spec", "clusterIP"),
		plainField("spec", "type"),
	}},
	coreKind("Event"): {namespace: true, selectable: append(eventFields("involvedObject"),
		plainField("reportingComponent"),
		fieldAt("source", "", []string{"source", "component"}, []string{"reportingComponent"}),
	)},
	{Group: "events.k8s.io", Version: "v1", Kind: "Event"}: {namespace: true, selectable: append(eventFields("regarding"),
		plainField("reportingController"),
	)},
	{Group: "batch", Version: "v1", Kind: "Job"}: {
		namespace:  true,
		selectable: []framing.Field{fieldAt("status.successful", "0", []string{"status", "succeeded"})},
	},
	{Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest"}: signerFields,
	{Group: "certificates.k8s.io", Version: "v1alpha1", Kind: "ClusterTrustBundle"}:  signerFields,
	{Group: "certificates.k8s.io", Version: "v1beta1", Kind: "ClusterTrustBundle"}:   signerFields,

	// Namespaced, and yet it has no metadata.namespace.
	{Group: "certificates.k8s.io", Version: "v1alpha1", Kind: "PodCertificateRequest"}: podCertificateFields,
	{Group: "certificates.k8s.io", Version: "v1beta1", Kind: "PodCertificateRequest"}:  podCertificateFields,

	{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceSlice"}:      resourceSliceFields,
	{Group: "resource.k8s.io", Version: "v1beta1", Kind: "ResourceSlice"}: resourceSliceFields,
	{Group: "resource.k8s.io", Version: "v1beta2", Kind: "ResourceSlice"}: resourceSliceFields,
}

var (
	signerFields         = kindFields{selectable: []framing.Field{plainField("spec", "signerName")}}
	podCertificateFields = kindFields{selectable: []framing.Field{
		plainField("spec", "signerName"),
		plainField("spec", "podName"),
		plainField("spec", "nodeName"),
	}}
	resourceSliceFields = kindFields{selectable: []framing.Field{
		plainField("spec", "nodeName"),
		plainField("spec", "driver"),
	}}
)

func coreKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: kind}
}

// plainField is the field whose label is its path.
func plainField(path ...string) framing.Field {
	label := path[0]
	for _, name := range path[1:] {
		label += "." + name
	}
	return fieldAt(label, "", path)
}

func fieldAt(label, value string, paths ...[]string) framing.Field {
	return framing.Field{Label: label, Paths: paths, Default: value}
}

// eventFields are the fields that both kinds of events have, about being what
// they call the object they are about.
func eventFields(about string) []framing.Field {
	return []framing.Field{
		plainField(about, "kind"),
		plainField(about, "namespace"),
		plainField(about, "name"),
		plainField(about, "uid"),
		plainField(about, "apiVersion"),
		plainField(about, "resourceVersion"),
		plainField(about, "fieldPath"),
		plainField("reason"),
		plainField("type"),
	}
}

func fieldsOf(info resourceInfo) kindFields {
	kf, ok := builtinFields[info.gvr.GroupVersion().WithKind(info.kind)]
	if !ok {
		kf = defaultFields
	}
	// Cluster-scoped built-in kinds either refuse metadata.namespace or let it
	// select nothing, custom ones refuse it: nothing to serve either way.
	kf.namespace = kf.namespace && info.namespaced
	return kf
}

// selectableFields returns the fields that a resource's objects can be selected
// by, besides metadata.name and metadata.namespace. The result is shared and
// must not be changed.
func selectableFields(info resourceInfo) []framing.Field {
	return fieldsOf(info).selectable
}

// fieldSelector returns sel with labels as selectableFields spells them. It
// reports false if the resource has no such field, or none that we know of: then
// kube-apiserver has the answer.
func fieldSelector(info resourceInfo, sel fields.Selector) (fields.Selector, bool) {
	if sel.Empty() {
		return sel, true
	}
	kf := fieldsOf(info)
	sel, err := sel.Transform(func(label, value string) (string, string, error) {
		label, ok := kf.canonical(label)
		if !ok {
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}
		return label, value, nil
	})
	return sel, err == nil
}

func (kf kindFields) canonical(label string) (string, bool) {
	if now, ok := kf.alias[label]; ok {
		label = now
	}
	switch label {
	case metav1.ObjectNameField:
		return label, true
	case "metadata.namespace":
		return label, kf.namespace
	}
	return label, slices.ContainsFunc(kf.selectable, func(f framing.Field) bool { return f.Label == label })
}
