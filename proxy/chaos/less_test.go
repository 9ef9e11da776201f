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
	switch {
	case !f.protobuf():
		return lessJSON(sent)
	case f.metadata():
		return lessProtobuf(sent, new(metav1.PartialObjectMetadata))
	}
	return lessProtobuf(sent, new(corev1.ConfigMap))
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

// message is an object in protobuf.
type message interface {
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

func lessProtobuf(sent []byte, o message) ([]byte, error) {
	magic := []byte("k8s\x00")
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(bytes.TrimPrefix(sent, magic)); err != nil {
		return nil, err
	}
	if err := o.Unmarshal(unknown.Raw); err != nil {
		return nil, err
	}
	o.SetManagedFields(nil)
	var err error
	if unknown.Raw, err = o.Marshal(); err != nil {
		return nil, err
	}
	less, err := unknown.Marshal()
	return append(magic, less...), err
}

// TestLess: an object without managedFields is what the same object is less the field, in each form.
// One that keeps the field is told apart.
func TestLess(t *testing.T) {
	t.Parallel()
	managed := []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}
	configMap := func(fields []metav1.ManagedFieldsEntry) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "u", ResourceVersion: "7",
			Annotations: map[string]string{"managedFields": `,"managedFields":[]`}, ManagedFields: fields},
			Data: map[string]string{"k": "<&>é", "managedFields": "x"}}
	}
	meta := func(fields []metav1.ManagedFieldsEntry) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: configMap(fields).ObjectMeta}
	}
	for _, c := range []struct {
		form        form
		whole, lean message
	}{
		{jsonForm, configMap(managed), configMap(nil)}, {protobufForm, configMap(managed), configMap(nil)},
		{jsonMetaForm, meta(managed), meta(nil)}, {protobufMetaForm, meta(managed), meta(nil)},
	} {
		whole, err := c.form.parse(c.form.pack(t, c.whole))
		if err != nil {
			t.Fatal(err)
		}
		lean, err := c.form.parse(c.form.pack(t, c.lean))
		if err != nil {
			t.Fatal(err)
		}
		if whole.less != lean.shown || lean.less != lean.shown || whole.shown == lean.shown {
			t.Errorf("%s: whole %+v, lean %+v", c.form.name, whole, lean)
		}
	}
}

// pack returns an event with an object as kube-apiserver sends it.
func (f form) pack(t *testing.T, o message) []byte {
	t.Helper()
	if !f.protobuf() {
		content, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Appendf(nil, "{\"type\":\"ADDED\",\"object\":%s}\n", content)
	}
	raw, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	content, err := (&runtime.Unknown{Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	e := metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), content...)}}
	frame, err := e.Marshal()
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
