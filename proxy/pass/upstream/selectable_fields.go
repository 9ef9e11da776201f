package upstream

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/framing"
)

// kindFields are the fields, besides metadata.name, by which objects of one kind can be selected.
type kindFields struct {
	selectable []framing.Field
	namespace  bool              // metadata.namespace is one of them
	alias      map[string]string // old labels and their new names
	newer      bool              // Kubernetes 1.30 has none of selectable, so kube-apiserver is asked
	except     string            // a version of Kubernetes 1.30, whose objects have other fields; "" for none
}

// defaultFields are those of every kind that is not in builtinFields: most built-in kinds, and
// custom resources, which also have the fields of their definition.
var defaultFields = kindFields{namespace: true}

// builtinFields lists the kinds with field selectors of their own, as of Kubernetes 1.37. The
// labels are those of k8s.io/kubernetes pkg/apis/*/v*/conversion.go, and their values those of
// strategy.go or storage.go of pkg/registry/*/*. The numbers are those of generated.proto in k8s.io/api,
// where they never change. They are the same in all versions of a kind, but for one.
var builtinFields = map[schema.GroupKind]kindFields{
	{Kind: "Pod"}: {
		namespace: true,
		alias:     map[string]string{"spec.host": "spec.nodeName"},
		selectable: []framing.Field{
			plainField("spec.nodeName", 2, 10),
			plainField("spec.restartPolicy", 2, 3),
			plainField("spec.schedulerName", 2, 19),
			plainField("spec.serviceAccountName", 2, 8),
			fieldAt("spec.hostNetwork", "false", at("spec.hostNetwork", 2, 11)),
			plainField("status.phase", 3, 1),
			plainField("status.podIP", 3, 6), // always the first of status.podIPs
			{Label: "status.podIPs"},         // accepted, and never filled
			plainField("status.nominatedNodeName", 3, 11),
		},
	},
	{Kind: "Node"}: {selectable: []framing.Field{
		fieldAt("spec.unschedulable", "false", at("spec.unschedulable", 2, 4)),
	}},
	{Kind: "Namespace"}: {selectable: []framing.Field{plainField("status.phase", 3, 1)}},
	{Kind: "ReplicationController"}: {
		namespace:  true,
		selectable: []framing.Field{fieldAt("status.replicas", "0", at("status.replicas", 3, 1))},
	},
	{Kind: "Secret"}: {namespace: true, selectable: []framing.Field{plainField("type", 3)}},
	// Kubelets and kube-proxies ask for the Services with spec.clusterIP!=None.
	{Kind: "Service"}: {namespace: true, newer: true, selectable: []framing.Field{
		plainField("spec.clusterIP", 2, 3),
		plainField("spec.type", 2, 4),
	}},
	{Kind: "Event"}: {namespace: true, selectable: append(objectReferenceFields("involvedObject", 2),
		plainField("reason", 3),
		plainField("type", 9),
		plainField("reportingComponent", 14),
		fieldAt("source", "", at("source.component", 5, 1), at("reportingComponent", 14)),
	)},
	{Group: "events.k8s.io", Kind: "Event"}: {namespace: true, selectable: append(objectReferenceFields("regarding", 8),
		plainField("reason", 7),
		plainField("type", 11),
		plainField("reportingController", 4),
	)},
	{Group: "batch", Kind: "Job"}: {
		namespace:  true,
		selectable: []framing.Field{fieldAt("status.successful", "0", at("status.succeeded", 3, 5))},
	},
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: {selectable: []framing.Field{
		plainField("spec.signerName", 2, 7),
	}},
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}: {selectable: []framing.Field{
		plainField("spec.signerName", 2, 1),
	}},
	// It is namespaced, but kube-apiserver does not let it be selected by metadata.namespace.
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}: {selectable: []framing.Field{
		plainField("spec.signerName", 2, 1),
		plainField("spec.podName", 2, 2),
		plainField("spec.nodeName", 2, 6),
	}},
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}: {except: "v1alpha2", selectable: []framing.Field{
		plainField("spec.nodeName", 2, 3),
		plainField("spec.driver", 2, 1),
	}},
}

// place is the place of a value in an object: by the names of JSON, and by the field numbers of
// protobuf.
type place struct {
	path    []string
	numbers []int32
}

func at(path string, numbers ...int32) place { return place{strings.Split(path, "."), numbers} }

func fieldAt(label, value string, places ...place) framing.Field {
	f := framing.Field{Label: label, Default: value}
	for _, p := range places {
		f.Paths = append(f.Paths, p.path)
		f.Numbers = append(f.Numbers, p.numbers)
	}
	return f
}

// plainField is the field whose label is its path.
func plainField(path string, numbers ...int32) framing.Field {
	return fieldAt(path, "", at(path, numbers...))
}

// objectReferenceFields are the fields of an event that name the event's object, which has the
// field number.
func objectReferenceFields(name string, number int32) (all []framing.Field) {
	for i, of := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		all = append(all, plainField(name+"."+of, number, int32(i)+1))
	}
	return all
}

func fieldsOf(info ResourceInfo) kindFields {
	kf, ok := builtinFields[schema.GroupKind{Group: info.GVR.Group, Kind: info.Kind}]
	if !ok || info.GVR.Version == kf.except {
		kf = defaultFields
		kf.selectable = info.Definition.fields(info.GVR.Version)
	}
	// Cluster-scoped built-in kinds either refuse metadata.namespace or select nothing by it.
	// Custom ones refuse it. Neither is served here.
	kf.namespace = kf.namespace && info.Namespaced
	return kf
}

// SelectableFields returns the fields by which a resource's objects can be selected, besides
// metadata.name and metadata.namespace. The result is shared and must not be changed.
func SelectableFields(info ResourceInfo) []framing.Field {
	return fieldsOf(info).selectable
}

// FieldSelector returns sel with labels as SelectableFields spells them. It reports false if the
// resource has no such field, or none that is known here. Then kube-apiserver answers.
func FieldSelector(info ResourceInfo, sel fields.Selector) (fields.Selector, bool) {
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

// newerFields returns the fields of a selector that older versions of kube-apiserver do not know.
func newerFields(info ResourceInfo, sel fields.Selector) (labels []string) {
	kf := fieldsOf(info)
	if !kf.newer {
		return nil
	}
	for _, r := range sel.Requirements() {
		if slices.ContainsFunc(kf.selectable, func(f framing.Field) bool { return f.Label == r.Field }) {
			labels = append(labels, r.Field)
		}
	}
	return labels
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
