package apistatus

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/watchfan/watchfan/framing"
)

// The bodies are those of kube-apiserver v1.36.3, byte for byte.
func TestStatusBodies(t *testing.T) {
	const head = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`
	f := func(st *metav1.Status, want string) {
		t.Helper()
		if got := string(encode(st, false)); got != head+want+"\n" {
			t.Errorf("got  %swant %s", got, head+want)
		}
	}
	f(Unauthorized(), `"message":"Unauthorized","reason":"Unauthorized","code":401}`)
	f(Expired(1, 231), `"message":"too old resource version: 1 (231)","reason":"Expired","code":410}`)
	f(NotFound(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "web"),
		`"message":"deployments.apps \"web\" not found","reason":"NotFound","details":{"name":"web","group":"apps",`+
			`"kind":"deployments"},"code":404}`)
	f(ServiceUnavailable("a<b"),
		`"message":"a\u003cb","reason":"ServiceUnavailable","details":{"retryAfterSeconds":1},"code":503}`)

	want := "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n" +
		"  \"message\": \"Unauthorized\",\n  \"reason\": \"Unauthorized\",\n  \"code\": 401\n}"
	if got := string(encode(Unauthorized(), true)); got != want {
		t.Errorf("pretty: got %s, want %s", got, want)
	}
}

// A watch ends with an ERROR event that clients of its encoding read.
func TestErrorFrameCBOR(t *testing.T) {
	st := ServiceUnavailable("a<b")
	var ev struct {
		Type   string         `json:"type"`
		Object map[string]any `json:"object"`
	}
	if err := direct.Unmarshal(ErrorFrame(framing.CBOR, st).Payload(nil), &ev); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": "a<b", "reason": "ServiceUnavailable", "details": map[string]any{"retryAfterSeconds": int64(1)},
		"code": int64(503)}
	if ev.Type != "ERROR" || !reflect.DeepEqual(ev.Object, want) {
		t.Errorf("got %s %v, want %v", ev.Type, ev.Object, want)
	}
	read, err := framing.NewScanner(framing.CBOR, nil).Event(ErrorFrame(framing.CBOR, st).Payload(nil))
	if err != nil || read.Type != framing.Error || read.Status.Code != 503 {
		t.Errorf("read as %+v, %v", read, err)
	}
}

// apimachinery's serializer takes only a Status that begins with its magic number.
func TestErrorFrameProtobuf(t *testing.T) {
	types := runtime.NewScheme()
	metav1.AddToGroupVersion(types, schema.GroupVersion{Version: "v1"})
	st, ev := ServiceUnavailable("a<b"), metav1.WatchEvent{}
	if err := ev.Unmarshal(ErrorFrame(framing.Protobuf, st).Payload(nil)[4:]); err != nil { // behind its length
		t.Fatal(err)
	}
	got, _, err := protobuf.NewSerializer(types, types).Decode(ev.Object.Raw, nil, nil)
	if err != nil || ev.Type != "ERROR" || !reflect.DeepEqual(got, st) {
		t.Errorf("got %s %v, %v, want %v", ev.Type, got, err, st)
	}
}
