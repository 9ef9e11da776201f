package chaos_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// dropping is f without metadata.managedFields (KEP-5958).
func (f form) dropping() form {
	f.accept, f.lean = f.accept+";drop=metadata.managedFields", true
	return f
}

// shown returns o with metadata.managedFields or without.
func (o *object) shown(lean bool) digests {
	if lean {
		return o.lean
	}
	return o.whole
}

// contentFor is the content that a client of form f knows. A lean one may be shown more.
func (e event) contentFor(lean bool) digest {
	if lean {
		return e.less.content
	}
	return e.content
}

// less returns an object as kube-apiserver sends it, without metadata.managedFields.
func (f form) less(sent []byte) ([]byte, error) {
	if !f.protobuf() {
		return lessJSON(sent)
	}
	o, err := runtime.Decode(inProtobuf, sent)
	if err != nil {
		return nil, err
	}
	o.(metav1.Object).SetManagedFields(nil)
	var less bytes.Buffer
	err = inProtobuf.Encode(o, &less)
	return less.Bytes(), err
}

// lessJSON needs a field before managedFields. There is always creationTimestamp or name.
func lessJSON(sent []byte) ([]byte, error) {
	var o struct {
		Metadata struct{ ManagedFields json.RawMessage }
	}
	err := json.Unmarshal(sent, &o)
	if err != nil || o.Metadata.ManagedFields == nil {
		return sent, err
	}
	before, behind, found := bytes.Cut(sent, append([]byte(`,"managedFields":`), o.Metadata.ManagedFields...))
	if !found {
		return nil, errors.New("managedFields come first")
	}
	return append(bytes.Clone(before), behind...), nil
}

// TestLess: an object without managedFields is what the same object is less the field, in each form.
// One that keeps the field is told apart.
func TestLess(t *testing.T) {
	t.Parallel()
	managed := []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}
	configMap := func(fields []metav1.ManagedFieldsEntry) runtime.Object {
		return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "u", ResourceVersion: "7",
				Annotations: map[string]string{"managedFields": `,"managedFields":[]`}, ManagedFields: fields},
			Data: map[string]string{"k": "<&>é", "managedFields": "x"}}
	}
	meta := func(fields []metav1.ManagedFieldsEntry) runtime.Object {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
			ObjectMeta: configMap(fields).(*corev1.ConfigMap).ObjectMeta}
	}
	for _, f := range allForms {
		object := configMap
		if f.metadata() {
			object = meta
		}
		whole, wrong := f.parse(f.pack(t, object(managed)))
		lean, err := f.parse(f.pack(t, object(nil)))
		if wrong != nil || err != nil || whole.less != lean.shown || lean.less != lean.shown || whole.shown == lean.shown {
			t.Errorf("%s: whole %+v %v, lean %+v %v", f.name, whole, wrong, lean, err)
		}
	}
}

// pack returns an event with an object as kube-apiserver sends it.
func (f form) pack(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	if !f.protobuf() {
		content, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Appendf(nil, "{\"type\":\"ADDED\",\"object\":%s}\n", content)
	}
	content, err := runtime.Encode(inProtobuf, o)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: content}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// TestUntold: where no header says whether objects have to be without managedFields, the first one
// decides for all behind it.
func TestUntold(t *testing.T) {
	t.Parallel()
	whole := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7",
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	lean := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "8"}}
	bookmark := "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"6\"}}}\n"
	for first, second := range map[*corev1.ConfigMap]*corev1.ConfigMap{whole: lean, lean: whole} {
		in := newEventReader(jsonForm.dropping(), strings.NewReader(bookmark+string(jsonForm.pack(t, first))+
			string(jsonForm.pack(t, second))), true)
		in.untold = true
		for range 3 {
			e, err := in.next()
			if err != nil || e.key != "" && e.inLean != (first == lean) {
				t.Errorf("%s behind %s: %t, %v", e, first.ResourceVersion, e.inLean, err)
			}
		}
		if in.untold {
			t.Error("no object has decided")
		}
	}
}
