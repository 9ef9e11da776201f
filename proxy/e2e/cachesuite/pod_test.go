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

// encodePod returns pod as a custom resource in JSON.
func (s *store) encodePod(obj runtime.Object, resourceVersion string) ([]byte, error) {
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
	var v1 examplev1.Pod
	if err := scheme.Convert(pod, &v1, nil); err != nil {
		return nil, err
	}
	v1.APIVersion, v1.Kind = s.group+"/v1", s.kind
	return json.Marshal(&v1)
}

// decodePod reads a custom resource into pod, without what kube-apiserver added to it.
func decodePod(content []byte, pod *example.Pod) error {
	var v1 examplev1.Pod
	if err := json.Unmarshal(content, &v1); err != nil {
		return err
	}
	*pod = example.Pod{}
	if err := scheme.Convert(&v1, pod, nil); err != nil {
		return err
	}
	pod.UID, pod.Generation, pod.CreationTimestamp, pod.ManagedFields = "", 0, metav1.Time{}, nil
	content = []byte(pod.Annotations[keptAnnotation])
	if len(content) == 0 {
		return nil
	}
	var k kept
	if err := json.Unmarshal(content, &k); err != nil {
		return err
	}
	pod.UID, pod.Generation = k.UID, k.Generation
	if delete(pod.Annotations, keptAnnotation); len(pod.Annotations) == 0 {
		pod.Annotations = nil
	}
	return nil
}

// decodeList reads a list of custom resources into list.
func decodeList(content []byte, list *example.PodList) error {
	var raw struct {
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage
	}
	if err := json.Unmarshal(content, &raw); err != nil {
		return err
	}
	*list = example.PodList{ListMeta: raw.ListMeta, Items: make([]example.Pod, len(raw.Items))}
	list.Continue = withoutSlash(list.Continue)
	for i, item := range raw.Items {
		if err := decodePod(item, &list.Items[i]); err != nil {
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
