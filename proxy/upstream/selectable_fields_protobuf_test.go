package upstream

import (
	"encoding/binary"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watchfan/watchfan/framing"
)

// withFields has an object of each kind in builtinFields, and the values of its selectable fields
// by label. All selectable fields have different values. Fields beside them have other values,
// which must not be confused with them.
var withFields = map[schema.GroupVersionKind]struct {
	object runtime.Object
	values map[string]string
}{
	coreKind("Pod"): {&corev1.Pod{
		Spec: corev1.PodSpec{
			NodeName: "node", RestartPolicy: "Never", SchedulerName: "scheduler", ServiceAccountName: "account",
			HostNetwork: true, Hostname: "host", DeprecatedServiceAccount: "old", Subdomain: "sub",
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
		Status: corev1.PodStatus{
			Phase: "Running", PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}},
			NominatedNodeName: "nominated", HostIP: "10.0.0.9", Message: "m", Reason: "r",
		},
	}, map[string]string{
		"spec.nodeName": "node", "spec.restartPolicy": "Never", "spec.schedulerName": "scheduler",
		"spec.serviceAccountName": "account", "spec.hostNetwork": "true", "status.phase": "Running",
		"status.podIP": "10.0.0.1", "status.podIPs": "", "status.nominatedNodeName": "nominated",
	}},
	coreKind("Node"): {&corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Unschedulable: true}},
		map[string]string{"spec.unschedulable": "true"}},
	coreKind("Namespace"): {&corev1.Namespace{
		Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}},
		Status: corev1.NamespaceStatus{Phase: "Active"},
	}, map[string]string{"status.phase": "Active"}},
	coreKind("ReplicationController"): {&corev1.ReplicationController{
		Status: corev1.ReplicationControllerStatus{Replicas: 1234567, ReadyReplicas: 2},
	}, map[string]string{"status.replicas": "1234567"}},
	coreKind("Secret"): {&corev1.Secret{
		Data: map[string][]byte{"type": []byte("inner")}, StringData: map[string]string{"a": "b"}, Type: "Opaque",
	}, map[string]string{"type": "Opaque"}},
	coreKind("Service"): {&corev1.Service{Spec: corev1.ServiceSpec{
		ClusterIP: "10.1.0.1", ClusterIPs: []string{"10.1.0.1", "fd00::2"}, Type: "NodePort",
		Ports: []corev1.ServicePort{{Port: 1}}, SessionAffinity: "None",
	}}, map[string]string{"spec.clusterIP": "10.1.0.1", "spec.type": "NodePort"}},
	coreKind("Event"): {&corev1.Event{
		InvolvedObject: aboutObject, Related: &corev1.ObjectReference{Kind: "other"}, Reason: "Reason",
		Message: "message", Type: "Warning", Action: "action",
		Source: corev1.EventSource{Component: "component", Host: "host"}, ReportingController: "controller",
		ReportingInstance: "instance",
	}, aboutValues("involvedObject", map[string]string{
		"reason": "Reason", "type": "Warning", "reportingComponent": "controller", "source": "component",
	})},
	{Group: "events.k8s.io", Version: "v1", Kind: "Event"}: {&eventsv1.Event{
		Regarding: aboutObject, Related: &corev1.ObjectReference{Kind: "other"}, Reason: "Reason", Note: "note",
		Type: "Warning", Action: "action", DeprecatedSource: corev1.EventSource{Component: "component", Host: "host"},
		ReportingController: "controller", ReportingInstance: "instance",
	}, aboutValues("regarding", map[string]string{
		"reason": "Reason", "type": "Warning", "reportingController": "controller",
	})},
	{Group: "batch", Version: "v1", Kind: "Job"}: {&batchv1.Job{
		Status: batchv1.JobStatus{Active: 1, Succeeded: 7654321, Failed: 3},
	}, map[string]string{"status.successful": "7654321"}},
	{Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest"}: {
		&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: "signer", Username: "user", UID: "uid", Request: []byte("request"),
		}},
		map[string]string{"spec.signerName": "signer"},
	},
	{Group: "certificates.k8s.io", Version: "v1alpha1", Kind: "ClusterTrustBundle"}: {
		&certificatesv1alpha1.ClusterTrustBundle{Spec: certificatesv1alpha1.ClusterTrustBundleSpec{
			SignerName: "signer", TrustBundle: "bundle",
		}},
		map[string]string{"spec.signerName": "signer"},
	},
	{Group: "certificates.k8s.io", Version: "v1beta1", Kind: "ClusterTrustBundle"}: {
		&certificatesv1beta1.ClusterTrustBundle{Spec: certificatesv1beta1.ClusterTrustBundleSpec{
			SignerName: "signer", TrustBundle: "bundle",
		}},
		map[string]string{"spec.signerName": "signer"},
	},
	// k8s.io/api no longer has it. v1beta1 has the same numbers.
	{Group: "certificates.k8s.io", Version: "v1alpha1", Kind: "PodCertificateRequest"}: {
		podCertificate, podCertificateValues,
	},
	{Group: "certificates.k8s.io", Version: "v1beta1", Kind: "PodCertificateRequest"}: {
		podCertificate, podCertificateValues,
	},
	{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceSlice"}: {
		&resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
			Driver: "driver", Pool: resourcev1.ResourcePool{Name: "pool"}, NodeName: pointer("node"),
			AllNodes: pointer(true),
		}},
		sliceValues,
	},
	{Group: "resource.k8s.io", Version: "v1beta1", Kind: "ResourceSlice"}: {
		&resourcev1beta1.ResourceSlice{Spec: resourcev1beta1.ResourceSliceSpec{
			Driver: "driver", Pool: resourcev1beta1.ResourcePool{Name: "pool"}, NodeName: "node", AllNodes: true,
		}},
		sliceValues,
	},
	{Group: "resource.k8s.io", Version: "v1beta2", Kind: "ResourceSlice"}: {
		&resourcev1beta2.ResourceSlice{Spec: resourcev1beta2.ResourceSliceSpec{
			Driver: "driver", Pool: resourcev1beta2.ResourcePool{Name: "pool"}, NodeName: pointer("node"),
			AllNodes: pointer(true),
		}},
		sliceValues,
	},
}

var (
	podCertificate = &certificatesv1beta1.PodCertificateRequest{Spec: certificatesv1beta1.PodCertificateRequestSpec{
		SignerName: "signer", PodName: "pod", PodUID: "uid", ServiceAccountName: "account",
		NodeName: types.NodeName("node"), NodeUID: "uid",
	}}
	podCertificateValues = map[string]string{"spec.signerName": "signer", "spec.podName": "pod",
		"spec.nodeName": "node"}
	sliceValues = map[string]string{"spec.nodeName": "node", "spec.driver": "driver"}
	aboutObject = corev1.ObjectReference{
		Kind: "kind", Namespace: "namespace", Name: "name", UID: "uid", APIVersion: "v2", ResourceVersion: "77",
		FieldPath: "path",
	}
)

func aboutValues(about string, values map[string]string) map[string]string {
	for field, value := range map[string]string{
		"kind": "kind", "namespace": "namespace", "name": "name", "uid": "uid", "apiVersion": "v2",
		"resourceVersion": "77", "fieldPath": "path",
	} {
		values[about+"."+field] = value
	}
	return values
}

func pointer[T any](v T) *T { return &v }

// Every selectable field has the same value in JSON and in protobuf.
func TestFieldsOfBothEncodings(t *testing.T) {
	for gvk, kf := range builtinFields {
		t.Run(strings.ReplaceAll(gvk.GroupVersion().String(), "/", " ")+" "+gvk.Kind, func(t *testing.T) {
			want, ok := withFields[gvk]
			if !ok {
				t.Fatal("no object of this kind to test with")
			}
			full := scanBoth(t, gvk, want.object, kf.selectable)
			empty := scanBoth(t, gvk, reflect.New(reflect.TypeOf(want.object).Elem()).Interface().(runtime.Object),
				kf.selectable)
			for i, f := range kf.selectable {
				value, ok := want.values[f.Label]
				if !ok {
					t.Errorf("%s: no value to test with", f.Label)
				}
				if full.Fields[i] != value {
					t.Errorf("%s: got %q, want %q", f.Label, full.Fields[i], value)
				}
				if empty.Fields[i] != f.Default {
					t.Errorf("%s of an empty object: got %q, want %q", f.Label, empty.Fields[i], f.Default)
				}
			}
		})
	}
}

// An event without a source is selected by its reportingComponent.
func TestEventSourceOfBothEncodings(t *testing.T) {
	fields := builtinFields[coreKind("Event")].selectable
	o := scanBoth(t, coreKind("Event"), &corev1.Event{ReportingController: "controller"}, fields)
	i := slices.IndexFunc(fields, func(f framing.Field) bool { return f.Label == "source" })
	if o.Fields[i] != "controller" {
		t.Errorf("source: got %q, want %q", o.Fields[i], "controller")
	}
}

// scanBoth gives an object its identity and returns it as read from both encodings, which must
// agree.
func scanBoth(
	t *testing.T, gvk schema.GroupVersionKind, object runtime.Object, fields []framing.Field,
) *framing.Object {
	t.Helper()
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(gvk)
	m := object.(metav1.Object)
	m.SetNamespace("ns")
	m.SetName("n")
	m.SetResourceVersion("7")
	m.SetLabels(map[string]string{"a": "1", "b": ""})

	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	line := slices.Concat([]byte(`{"type":"ADDED","object":`), raw, []byte("}\n"))
	want := scanEvent(t, framing.JSON, line, fields)

	raw, err = runtime.Encode(protobuf.NewSerializer(nil, nil), object)
	if err != nil {
		t.Fatal(err)
	}
	ev := metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: raw}}
	message, err := ev.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got := scanEvent(t, framing.Protobuf, append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...),
		fields)

	if got.Key != want.Key || got.Namespace != want.Namespace || got.Name != want.Name ||
		got.ResourceVersion != want.ResourceVersion ||
		!reflect.DeepEqual(got.Labels, want.Labels) || !slices.Equal(got.Fields, want.Fields) {
		t.Errorf("protobuf reads as %+v\nJSON as %+v", got, want)
	}
	return got
}

func scanEvent(t *testing.T, e framing.Encoding, stream []byte, fields []framing.Field) *framing.Object {
	t.Helper()
	event, err := framing.NewEventReader(e, strings.NewReader(string(stream))).Next()
	if err != nil {
		t.Fatal(err)
	}
	ev, err := framing.NewScanner(e, fields).Event(event)
	if err != nil {
		t.Fatal(err)
	}
	return ev.Object
}
