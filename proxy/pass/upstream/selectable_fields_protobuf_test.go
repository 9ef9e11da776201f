package upstream

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watchfan/watchfan/framing"
)

// Every selectable field has the same value in JSON and in protobuf: that at the path which is its
// label, but for a few labels. All fields of an object have different values, which must not be confused.
func TestFieldsOfBothEncodings(t *testing.T) {
	paths := map[string]string{"status.successful": "status.succeeded", "source": "source.component", "status.podIPs": "never.filled"}
	known := make(map[schema.GroupKind]bool)
	for gvk := range scheme.Scheme.AllKnownTypes() { // in all versions
		kf, ok := builtinFields[gvk.GroupKind()]
		if !ok {
			continue
		}
		known[gvk.GroupKind()] = true
		object, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		empty := scanBoth(t, gvk, object, kf.selectable)
		n := 0
		fill(reflect.ValueOf(object).Elem(), &n)
		full := scanBoth(t, gvk, object, kf.selectable)
		values, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range kf.selectable {
			path := f.Label
			if other, ok := paths[path]; ok {
				path = other
			}
			want := ""
			if value, ok, err := unstructured.NestedFieldNoCopy(values, strings.Split(path, ".")...); ok || err != nil {
				want = fmt.Sprint(value)
			} else if path != "never.filled" {
				t.Errorf("%s has no %s", gvk, path)
			}
			if full.Fields[i] != want {
				t.Errorf("%s, %s: got %q, want %q", gvk, f.Label, full.Fields[i], want)
			}
			if empty.Fields[i] != f.Default {
				t.Errorf("%s, %s of an empty object: got %q, want %q", gvk, f.Label, empty.Fields[i], f.Default)
			}
		}
	}
	if len(known) != len(builtinFields) {
		t.Errorf("only %v are there", known)
	}
}

// fill gives every string and number in v a value of its own, and makes every boolean true. It leaves
// times, quantities, lists and maps as they are.
func fill(v reflect.Value, n *int) {
	if reflect.PointerTo(v.Type()).Implements(reflect.TypeFor[json.Marshaler]()) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "TypeMeta" && name != "ObjectMeta" {
				fill(v.Field(i), n)
			}
		}
	case reflect.Pointer:
		if !v.Type().Implements(reflect.TypeFor[json.Marshaler]()) {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), n)
		}
	case reflect.String:
		*n++
		v.SetString(fmt.Sprint("value", *n))
	case reflect.Int32, reflect.Int64:
		*n++
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	}
}

// An event without a source is selected by its reportingComponent.
func TestEventSourceOfBothEncodings(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("Event")
	fields := builtinFields[gvk.GroupKind()].selectable
	o := scanBoth(t, gvk, &corev1.Event{ReportingController: "controller"}, fields)
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
