//go:build linux

package load

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// podList returns the body of a list of n pods.
func podList(t *testing.T, f Form, n int) []byte {
	list := &corev1.PodList{Items: make([]corev1.Pod, n)}
	for i := range list.Items {
		if err := json.Unmarshal([]byte(NewPod(i).Json), &list.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
	return encodePods(t, f, list)
}

// encodePods returns the body of a list of pods.
func encodePods(t *testing.T, f Form, list *corev1.PodList) []byte {
	body, err := json.Marshal(list)
	if f.Format == "protobuf" {
		if body, err = list.Marshal(); err == nil {
			body, err = (&runtime.Unknown{Raw: body}).Marshal()
		}
		body = append([]byte("k8s\x00"), body...)
	}
	if err != nil {
		t.Fatal(err)
	}
	if f.Encoding == "gzip" {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		z.Write(body)
		z.Close()
		body = zipped.Bytes()
	}
	return body
}

func TestDecodePodsErrors(t *testing.T) {
	f := func(format, encoding, body string) {
		t.Helper()
		if _, err := DecodePods(Form{format, encoding, "0", false}, strings.NewReader(body)); err == nil {
			t.Errorf("%s, %s: decoded %q", format, encoding, body)
		}
	}
	f("json", "identity", `{"items":[`)
	f("json", "gzip", `{"items":[]}`)
	f("protobuf", "identity", `{"items":[]}`)
	f("protobuf", "identity", "k8s\x00\xff")
}

// TestNewPod: the pods differ, and are the same in every run.
func TestNewPod(t *testing.T) {
	names := make(map[string]bool)
	for i := range 1000 {
		p := NewPod(i)
		if again := NewPod(i); p != again {
			t.Fatalf("pod %d differs the second time", i)
		}
		var decoded corev1.Pod
		d := json.NewDecoder(strings.NewReader(p.Json))
		d.DisallowUnknownFields()
		if err := d.Decode(&decoded); err != nil {
			t.Fatalf("%v: %s", err, p.Json)
		}
		if decoded.Name != p.name || decoded.Namespace != p.namespace || strings.Contains(p.Json, "$") {
			t.Fatalf("%+v", p)
		}
		names[p.namespace+"/"+p.name] = true
	}
	if len(names) != 1000 {
		t.Errorf("%d names of 1000 pods", len(names))
	}
}
