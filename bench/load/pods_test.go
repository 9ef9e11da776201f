package load

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
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
