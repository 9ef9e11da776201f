package proxytest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
)

// Typed is an object of a type of k8s.io/api/core/v1.
type Typed interface {
	runtime.Object
	metav1.Object
}

// ProtobufType is the media type of Kubernetes' protobuf.
const ProtobufType = "application/vnd.kubernetes.protobuf"

var (
	typed    = newScheme()
	protobuf = serializer.NewSerializer(typed, typed)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	must(corev1.AddToScheme(s))
	return s
}

// must panics: only a type that is not in typed is an error.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// AddTyped is Add for a resource of which the server has protobuf too. All of its objects are written with
// PutTyped.
func (s *Server) AddTyped(r Resource) *Collection {
	c := s.Add(r)
	c.typed = true
	return c
}

// PutTyped writes an object, and returns it with what the server has given it. Nobody may change that.
func (c *Collection) PutTyped(o Typed) Typed {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.putLocked(object{namespace: o.GetNamespace(), name: o.GetName(), typed: o})
	return c.objects[o.GetNamespace()+"/"+o.GetName()].typed
}

// identify gives a copy of a typed object its uid and resourceVersion.
func (o *object) identify(r Resource) {
	if o.typed == nil {
		return
	}
	o.typed = o.typed.DeepCopyObject().(Typed)
	o.typed.GetObjectKind().SetGroupVersionKind(r.gvk(""))
	o.typed.SetUID(types.UID(o.uid))
	o.typed.SetResourceVersion(strconv.FormatUint(o.rv, 10))
}

// gvk returns the type of the resource's objects, or of one with a suffix.
func (r Resource) gvk(suffix string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind + suffix}
}

// typedJSON is json for a typed object.
func (o object) typedJSON(item bool) string {
	shown := o.typed
	if item {
		shown = shown.DeepCopyObject().(Typed)
		shown.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	text, err := json.Marshal(shown)
	must(err)
	return string(text)
}

// encodeProtobuf returns an object of a type of k8s.io/api/core/v1 as kube-apiserver writes it.
func encodeProtobuf(o runtime.Object) []byte {
	var b bytes.Buffer
	must(protobuf.Encode(o, &b))
	return b.Bytes()
}

// DecodeProtobuf reads an object of a type of k8s.io/api/core/v1, a list of them, or a Status.
func DecodeProtobuf(b []byte) (runtime.Object, error) {
	o, _, err := protobuf.Decode(b, nil, nil)
	return o, err
}

// protobufs reports whether an answer to call is in protobuf. Metadata alone is not asked for so.
func (c *Collection) protobufs(call *Call) bool {
	accept := call.R.Header.Get("Accept")
	return c.typed && strings.HasPrefix(accept, ProtobufType) && !strings.Contains(accept, "as=")
}

// protobufList returns a list of typed objects.
func (r Resource) protobufList(rv uint64, next string, objects []object) []byte {
	list, err := typed.New(r.gvk("List"))
	must(err)
	items := make([]runtime.Object, len(objects))
	for i, o := range objects {
		items[i] = o.typed
	}
	must(meta.SetList(list, items))
	about, err := meta.ListAccessor(list)
	must(err)
	about.SetResourceVersion(strconv.FormatUint(rv, 10))
	about.SetContinue(next)
	list.GetObjectKind().SetGroupVersionKind(r.gvk("List"))
	return encodeProtobuf(list)
}

// line returns a change as the stream sends it.
func (st *Stream) line(ch change) string {
	if st.protobuf {
		return protobufEvent(ch.kind, ch.typed)
	}
	return ch.line(st.collection.Resource)
}

// bookmark returns a bookmark with the server's resourceVersion as the stream sends it.
func (st *Stream) bookmark(end bool) string {
	r, rv := st.collection.Resource, st.s.rv
	if !st.protobuf {
		return r.Bookmark(rv, end)
	}
	o, err := typed.New(r.gvk(""))
	must(err)
	o.GetObjectKind().SetGroupVersionKind(r.gvk(""))
	o.(Typed).SetResourceVersion(strconv.FormatUint(rv, 10))
	if end {
		o.(Typed).SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return protobufEvent("BOOKMARK", o)
}

// expired returns the ERROR of a watch from before the history as the stream sends it.
func (st *Stream) expired() string {
	message := fmt.Sprintf("too old resource version: %d (%d)", st.from, st.collection.floor)
	if !st.protobuf {
		return ErrorEvent(http.StatusGone, string(metav1.StatusReasonExpired), message)
	}
	return protobufEvent("ERROR", &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Message: message, Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
}

func protobufEvent(kind string, o runtime.Object) string {
	event := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: encodeProtobuf(o)}}
	b, err := event.Marshal()
	must(err)
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(b)))) + string(b)
}
