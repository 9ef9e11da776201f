package chaos_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

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

// TestUntold: where no header says whether objects have to be without managedFields, the first one
// decides for all behind it.
func TestUntold(t *testing.T) {
	t.Parallel()
	const bookmark = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"6"}}}`
	const whole = `{"type":"ADDED","object":{"metadata":{"name":"a","managedFields":[{"manager":"m"}]}}}`
	const lean = `{"type":"ADDED","object":{"metadata":{"name":"a"}}}`
	for first, second := range map[string]string{whole: lean, lean: whole} {
		stream := strings.NewReader(strings.Join([]string{bookmark, first, second, ""}, "\n"))
		in := newEventReader(jsonForm.dropping(), stream, true)
		in.untold = true
		for range 3 {
			e, err := in.next()
			if err != nil || e.key != "" && e.inLean != (first == lean) {
				t.Errorf("%s behind %s: %t, %v", e, first, e.inLean, err)
			}
		}
	}
}
