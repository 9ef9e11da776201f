package cachesuite

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{example.AddToScheme, examplev1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// keptAnnotation holds what the suite writes into fields that kube-apiserver sets itself. The suite
// does not see it.
const keptAnnotation = "watchfan.dev/kept"

// kept is the value of keptAnnotation.
type kept struct {
	UID        types.UID
	Generation int64
}

// encodePod returns a Pod as it is sent.
func encodePod(obj runtime.Object, resourceVersion string) (*examplev1.Pod, error) {
	pod, ok := obj.(*example.Pod)
	if !ok {
		return nil, fmt.Errorf("%T is no Pod", obj)
	}
	pod = pod.DeepCopy()
	pod.ResourceVersion, pod.ManagedFields = resourceVersion, nil
	if pod.UID != "" || pod.Generation != 0 {
		content, err := json.Marshal(kept{pod.UID, pod.Generation})
		if err != nil {
			return nil, err
		}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, keptAnnotation, string(content))
		pod.UID, pod.Generation = "", 0
	}
	v1 := new(examplev1.Pod)
	return v1, scheme.Convert(pod, v1, nil)
}

// decodePod makes pod what was sent, without what kube-apiserver added to it.
func decodePod(sent *examplev1.Pod, pod *example.Pod) error {
	*pod = example.Pod{}
	if err := scheme.Convert(sent, pod, nil); err != nil {
		return err
	}
	pod.UID, pod.Generation, pod.CreationTimestamp, pod.ManagedFields = "", 0, metav1.Time{}, nil
	content := pod.Annotations[keptAnnotation]
	if content == "" {
		return nil
	}
	var k kept
	if err := json.Unmarshal([]byte(content), &k); err != nil {
		return err
	}
	pod.UID, pod.Generation = k.UID, k.Generation
	if delete(pod.Annotations, keptAnnotation); len(pod.Annotations) == 0 {
		pod.Annotations = nil
	}
	return nil
}

// decodeList makes list what was sent, as decodePod does.
func decodeList(sent *examplev1.PodList, list *example.PodList) error {
	*list = example.PodList{ListMeta: sent.ListMeta, Items: make([]example.Pod, len(sent.Items))}
	list.Continue = withoutSlash(list.Continue)
	for i := range sent.Items {
		if err := decodePod(&sent.Items[i], &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// withoutSlash returns a continue token whose start has no slash in front, as the suite writes it.
// kube-apiserver writes one for custom resources, and reads both.
func withoutSlash(token string) string {
	content, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return token
	}
	return base64.RawURLEncoding.EncodeToString(bytes.Replace(content, []byte(`"start":"/`), []byte(`"start":"`), 1))
}
