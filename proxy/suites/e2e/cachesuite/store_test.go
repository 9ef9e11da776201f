package cachesuite

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/rest"
)

// store is a storage.Interface that reads and writes a custom resource of one server through REST.
// It keeps nothing, and ignores suggestions. Its methods may be called from any goroutine.
type store struct {
	custom
	rest       rest.Interface // of the group of the custom resource
	parameters runtime.ParameterCodec

	truth *store // the same at kube-apiserver, which says what a write begins from and when a delete was
	etcd  *etcd
	lazy  bool // a write begins from a cached state, and a delete returns the resourceVersion from before
}

var _ storage.Interface = (*store)(nil)

// custom is a custom resource.
type custom struct{ resource, kind, scope string }

var (
	podKind        = custom{"pods", "Pod", "Namespaced"}
	clusterPodKind = custom{"clusterpods", "ClusterPod", "Cluster"}
)

func (s *store) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// collection begins a request about p's collection.
func (s *store) collection(verb string, p place) *rest.Request {
	return s.rest.Verb(verb).MaxRetries(0).NamespaceIfScoped(p.namespace, p.namespace != "").Resource(s.resource)
}

// object begins a request about the object p.
func (s *store) object(verb string, p place) *rest.Request { return s.collection(verb, p).Name(p.name) }

// do sends a request, and reads the Pod that is the answer.
func (s *store) do(ctx context.Context, r *rest.Request, key string, out runtime.Object) error {
	var pod examplev1.Pod
	if err := r.Do(ctx).Into(&pod); err != nil {
		return storageError(err, key)
	}
	return decodePod(&pod, out.(*example.Pod))
}

// storageError returns the storage error for key that stands for kube-apiserver's, if there is one.
func storageError(err error, key string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return storage.NewKeyNotFoundError(key, 0)
	case apierrors.IsAlreadyExists(err):
		return storage.NewKeyExistsError(key, 0)
	case apierrors.IsConflict(err):
		return storage.NewResourceVersionConflictsError(key, 0)
	case strings.Contains(err.Error(), storage.ErrResourceVersionSetOnCreate.Error()):
		return storage.ErrResourceVersionSetOnCreate
	}
	return err
}

// Create ends with its request and not with ctx, whose deadline is meant for a watch beside it.
func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if ttl != 0 {
		return errNoREST
	}
	p, err := s.parseObjectKey(key)
	if err != nil {
		return err
	}
	pod, err := encodePod(obj, obj.(*example.Pod).ResourceVersion)
	if err != nil {
		return err
	}
	return s.do(context.WithoutCancel(ctx), s.collection(http.MethodPost, p).Body(pod), key, out)
}

func (s *store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	p, err := s.parseObjectKey(key)
	if err != nil {
		return err
	}
	get := s.object(http.MethodGet, p).VersionedParams(&metav1.GetOptions{ResourceVersion: opts.ResourceVersion}, s.parameters)
	err = s.do(ctx, get, key, out)
	if storage.IsNotFound(err) && opts.IgnoreNotFound {
		*out.(*example.Pod) = example.Pod{}
		return nil
	}
	return err
}

func (s *store) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	p, err := s.parseKey(key, opts.Recursive)
	if err != nil {
		return err
	}
	if !opts.Recursive && p.name == "" {
		return errNoREST
	}
	var list examplev1.PodList
	err = s.collection(http.MethodGet, p).VersionedParams(listOptions(p, opts), s.parameters).Do(ctx).Into(&list)
	if err != nil {
		return storageError(err, key)
	}
	return decodeList(&list, out.(*example.PodList))
}

// listOptions returns the parameters of a list or a watch of p.
func listOptions(p place, opts storage.ListOptions) *metav1.ListOptions {
	o := &metav1.ListOptions{ResourceVersion: opts.ResourceVersion, ResourceVersionMatch: opts.ResourceVersionMatch,
		Continue: opts.Predicate.Continue, Limit: opts.Predicate.Limit}
	if opts.Predicate.Label != nil {
		o.LabelSelector = opts.Predicate.Label.String()
	}
	var fields []string
	if p.name != "" {
		fields = append(fields, "metadata.name="+p.name)
	}
	if opts.Predicate.Field != nil && !opts.Predicate.Field.Empty() {
		fields = append(fields, opts.Predicate.Field.String())
	}
	o.FieldSelector = strings.Join(fields, ",")
	return o
}

// GuaranteedUpdate ends with its request and not with ctx, as Create does. It ignores the time to
// live that tryUpdate returns.
func (s *store) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object) error {
	p, err := s.parseObjectKey(key)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	for cached := s.lazy; ; cached = false {
		current, err := s.before(ctx, key, cached, ignoreNotFound, preconditions)
		if err != nil {
			return err
		}
		version := current.ResourceVersion
		updated, _, err := tryUpdate(current, storage.ResponseMeta{})
		if err != nil {
			return err
		}
		pod, err := encodePod(updated, version)
		if err != nil {
			return err
		}
		write := s.object(http.MethodPut, p)
		if version == "" {
			write = s.collection(http.MethodPost, p)
		}
		if err = s.do(ctx, write.Body(pod), key, out); !storage.IsConflict(err) && !storage.IsExist(err) {
			return err
		}
	}
}

func (s *store) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	p, err := s.parseObjectKey(key)
	if err != nil {
		return err
	}
	for cached := s.lazy; ; cached = false {
		current, err := s.before(ctx, key, cached, false, preconditions)
		if err != nil {
			return err
		}
		if err := validate(ctx, current); err != nil {
			return err
		}
		version := current.ResourceVersion
		condition := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}
		err = storageError(s.object(http.MethodDelete, p).Body(condition).Do(ctx).Error(), key)
		if storage.IsConflict(err) {
			continue
		}
		if err == nil && !s.lazy {
			current.ResourceVersion, err = s.truth.deleted(ctx, p, version)
		}
		*out.(*example.Pod) = *current
		return err
	}
}

// deleted returns the resourceVersion of the deletion of the object p, which had a resourceVersion
// before. The answer to a DELETE of a custom resource does not say it.
func (s *store) deleted(ctx context.Context, p place, version string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := s.watch(ctx, p, storage.ListOptions{ResourceVersion: version})
	if err != nil {
		return "", err
	}
	event := <-w.ResultChan()
	pod, ok := event.Object.(*example.Pod)
	if !ok {
		return "", fmt.Errorf("watch for a deletion: got %v", event)
	}
	return pod.ResourceVersion, nil
}

// before reads the object that a write begins from, and checks it. If cached is true, it may come from a cache.
func (s *store) before(ctx context.Context, key string, cached, ignoreNotFound bool,
	preconditions *storage.Preconditions) (*example.Pod, error) {
	pod, err := new(example.Pod), error(nil)
	if cached {
		err = s.truth.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, pod)
	}
	if !cached || storage.IsNotFound(err) {
		err = s.truth.Get(ctx, key, storage.GetOptions{IgnoreNotFound: ignoreNotFound}, pod)
	}
	if err == nil {
		err = preconditions.Check(key, pod)
	}
	return pod, err
}

// GetCurrentResourceVersion returns the resourceVersion of a list without a resourceVersion.
func (s *store) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	var list example.PodList
	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	opts.Predicate.Limit = 1
	if err := s.GetList(ctx, "/pods/", opts, &list); err != nil {
		return 0, err
	}
	return s.Versioner().ParseResourceVersion(list.ResourceVersion)
}

// CompactRevision returns the revision of the last compaction of the suite.
func (s *store) CompactRevision() int64 { return s.etcd.compacted.Load() }

func (s *store) Stats(context.Context) (storage.Stats, error)        { return storage.Stats{}, errNoREST }
func (s *store) ReadinessCheck() error                               { return nil }
func (s *store) RequestWatchProgress(context.Context) error          { return errNoREST }
func (s *store) EnableResourceSizeEstimation(storage.KeysFunc) error { return errNoREST }
