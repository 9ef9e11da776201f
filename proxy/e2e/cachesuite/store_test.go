package cachesuite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// store is a storage.Interface that reads and writes a custom resource of one server through REST.
// It keeps nothing, and ignores suggestions. Its methods may be called from any goroutine.
type store struct {
	custom
	client *http.Client
	server string // its URL
	group  string // of the custom resources

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

// do sends a request and returns the body of the answer. An answer other than 2xx is an error: a
// storage error for key if there is one, or else kube-apiserver's Status.
func (s *store) do(ctx context.Context, method, url string, body []byte, key string) ([]byte, error) {
	resp, err := s.send(ctx, method, url, body, key)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func (s *store) send(ctx context.Context, method, url string, body []byte, key string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return nil, statusError(content, key)
}

// statusError returns the error that an answer's body, a Status, describes.
func statusError(content []byte, key string) error {
	var status metav1.Status
	if err := json.Unmarshal(content, &status); err != nil || status.Status != metav1.StatusFailure {
		return fmt.Errorf("the answer is no Status: %.200q", content)
	}
	err := &apierrors.StatusError{ErrStatus: status}
	switch {
	case apierrors.IsNotFound(err):
		return storage.NewKeyNotFoundError(key, 0)
	case apierrors.IsAlreadyExists(err):
		return storage.NewKeyExistsError(key, 0)
	case apierrors.IsConflict(err):
		return storage.NewResourceVersionConflictsError(key, 0)
	case strings.Contains(status.Message, storage.ErrResourceVersionSetOnCreate.Error()):
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
	body, err := s.encodePod(obj, obj.(*example.Pod).ResourceVersion)
	if err != nil {
		return err
	}
	answer, err := s.do(context.WithoutCancel(ctx), http.MethodPost, s.collection(p), body, key)
	if err != nil {
		return err
	}
	return decodePod(answer, out.(*example.Pod))
}

func (s *store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	p, err := s.parseObjectKey(key)
	if err != nil {
		return err
	}
	query := url.Values{}
	if opts.ResourceVersion != "" {
		query.Set("resourceVersion", opts.ResourceVersion)
	}
	answer, err := s.do(ctx, http.MethodGet, s.object(p)+"?"+query.Encode(), nil, key)
	if storage.IsNotFound(err) && opts.IgnoreNotFound {
		*out.(*example.Pod) = example.Pod{}
		return nil
	}
	if err != nil {
		return err
	}
	return decodePod(answer, out.(*example.Pod))
}

func (s *store) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	p, err := s.parseKey(key, opts.Recursive)
	if err != nil {
		return err
	}
	if !opts.Recursive && p.name == "" {
		return errNoREST
	}
	answer, err := s.do(ctx, http.MethodGet, s.collection(p)+"?"+query(p, opts).Encode(), nil, key)
	if err != nil {
		return err
	}
	return decodeList(answer, out.(*example.PodList))
}

// query returns the parameters of a list or a watch of p.
func query(p place, opts storage.ListOptions) url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("resourceVersion", opts.ResourceVersion)
	set("resourceVersionMatch", string(opts.ResourceVersionMatch))
	set("continue", opts.Predicate.Continue)
	if opts.Predicate.Limit > 0 {
		q.Set("limit", strconv.FormatInt(opts.Predicate.Limit, 10))
	}
	if opts.Predicate.Label != nil {
		set("labelSelector", opts.Predicate.Label.String())
	}
	var fields []string
	if p.name != "" {
		fields = append(fields, "metadata.name="+p.name)
	}
	if opts.Predicate.Field != nil && !opts.Predicate.Field.Empty() {
		fields = append(fields, opts.Predicate.Field.String())
	}
	set("fieldSelector", strings.Join(fields, ","))
	return q
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
		body, err := s.encodePod(updated, version)
		if err != nil {
			return err
		}
		method, url := http.MethodPut, s.object(p)
		if version == "" {
			method, url = http.MethodPost, s.collection(p)
		}
		answer, err := s.do(ctx, method, url, body, key)
		switch {
		case storage.IsConflict(err), storage.IsExist(err):
		case err != nil:
			return err
		default:
			return decodePod(answer, out.(*example.Pod))
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
		body, err := json.Marshal(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
		if err != nil {
			return err
		}
		_, err = s.do(ctx, http.MethodDelete, s.object(p), body, key)
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
