package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// requestLog is a transport that notes requests, each behind its result.
type requestLog struct {
	next http.RoundTripper

	mu       sync.Mutex
	requests []string
}

func (l *requestLog) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	result := "error"
	if err == nil {
		result = fmt.Sprint(resp.StatusCode)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, result+" "+req.URL.RequestURI())
	return resp, err
}

// reads counts a resource's syncs: lists, and watches with initial events. The lists of client-go's
// inconsistency detector do not count, nor do watch-lists where there are none.
func (l *requestLog) reads(resource string) (syncs, watches int, all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		path, query, _ := strings.Cut(r, "?")
		if !strings.HasSuffix(path, "/"+resource) || strings.Contains(query, "resourceVersionMatch=Exact") || strings.HasPrefix(r, "422 ") {
			continue
		}
		all = append(all, r)
		if strings.Contains(query, "watch=true") && !strings.Contains(query, "sendInitialEvents=true") {
			watches++
		} else {
			syncs++
		}
	}
	return syncs, watches, all
}

// informerSet is a real client: a SharedInformer for ConfigMaps and one for Pods.
type informerSet struct {
	name       string
	log        *requestLog
	configMaps cache.SharedIndexInformer
	pods       cache.SharedIndexInformer
}

// startInformers starts informers as any controller does.
func startInformers(t *testing.T, name string, config *rest.Config) *informerSet {
	t.Helper()
	s := &informerSet{name: name, log: new(requestLog)}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { s.log.next = next; return s.log })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	s.configMaps, s.pods = factory.Core().V1().ConfigMaps().Informer(), factory.Core().V1().Pods().Informer()
	factory.Start(t.Context().Done())
	return s
}

func (s *informerSet) waitSynced(t *testing.T) {
	t.Helper()
	steady.Until(t, "sync of "+s.name, func() error {
		if !s.configMaps.HasSynced() || !s.pods.HasSynced() {
			_, _, all := s.log.reads("configmaps")
			return fmt.Errorf("not synced after %q", all)
		}
		return nil
	})
}

// holds compares an informer's store with a list of kube-apiserver's.
func holds[T any](informer cache.SharedIndexInformer, list []T) error {
	want := make(map[string]any)
	for i := range list {
		o := any(&list[i]).(runtime.Object)
		key, err := cache.MetaNamespaceKeyFunc(o)
		if err != nil {
			return err
		}
		want[key] = o
	}
	for _, key := range informer.GetStore().ListKeys() {
		if want[key] == nil {
			return fmt.Errorf("holds %s, which the cluster does not", key)
		}
	}
	for key, o := range want {
		got, ok, _ := informer.GetStore().GetByKey(key)
		if !ok {
			return fmt.Errorf("lacks %s", key)
		}
		if !equality.Semantic.DeepEqual(got, o) {
			return fmt.Errorf("holds %s as\n%+v, want\n%+v", key, got, o)
		}
	}
	return nil
}

// podChurn creates, binds, moves through phases and deletes pods until stop is closed, and counts the writes.
func podChurn(d *target, namespace string, stop <-chan struct{}, writes *atomic.Int64) {
	uri := "/api/v1/namespaces/" + namespace + "/pods"
	for i := 0; pace(stop, 40*time.Millisecond); i++ {
		name := fmt.Sprintf("p-%d", i%7)
		one := uri + "/" + name
		for _, w := range []struct{ method, uri, contentType, body string }{
			{http.MethodPost, uri, "application/json", podBody(name, "")},
			{http.MethodPost, one + "/binding", "application/json",
				fmt.Sprintf(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q},"target":{"apiVersion":"v1",`+
					`"kind":"Node","name":"node-%d"}}`, name, i%3)},
			{http.MethodPatch, one + "/status", "application/merge-patch+json", `{"status":{"phase":"Running"}}`},
			{http.MethodDelete, one + "?gracePeriodSeconds=0", "application/json", ""},
		}[:2+i%3] {
			if _, err := d.write(w.method, w.uri, w.contentType, w.body); err == nil {
				writes.Add(1)
			}
		}
	}
}

func podBody(name, node string) string {
	spec := `"containers":[{"name":"c","image":"i"}]`
	if node != "" {
		spec += fmt.Sprintf(`,"nodeName":%q`, node)
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"l":"1"}},"spec":{%s}}`, name,
		spec)
}

// TestInformers: "A client-go SharedInformer for ConfigMaps and one for Pods sync through the proxy
// and hold exactly the cluster's state after churn and after kube-apiserver is restarted in the
// middle, with no relist caused by us."
func TestInformers(t *testing.T) {
	parallel(t)
	c := privateCluster(t, endWatches...)
	p := privateWatchfan(t, c)
	direct := c.direct(t)
	createNamespaces(t, direct, "informed", "informed-b")
	p.waitReady(t)

	plain := &rest.Config{Host: "http://" + p.Ports.Insecure,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	protobuf := &rest.Config{Host: "http://" + p.Ports.Insecure, ContentConfig: rest.ContentConfig{
		AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
		ContentType:        "application/vnd.kubernetes.protobuf"}}
	secure := &rest.Config{Host: "https://" + p.Ports.Secure, BearerToken: c.token(t, "reader"),
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig:   rest.ContentConfig{ContentType: "application/json"}}

	work := &churn{target: direct, namespaces: []string{"informed", "informed-b"}, rate: 50, names: 24,
		seed: steady.Rand(t).Uint64(), tolerant: true}
	endWrites, stop := work.start(t), make(chan struct{})
	var podWrites atomic.Int64
	var pods sync.WaitGroup
	pods.Go(func() { podChurn(direct, "informed", stop, &podWrites) })
	work.await(t, *writes/8)
	cached := []*informerSet{startInformers(t, "plain", plain), startInformers(t, "secure", secure)}
	passed := startInformers(t, "protobuf", protobuf)
	for _, s := range append(cached, passed) {
		s.waitSynced(t)
	}
	work.awaitMore(t, *writes/8)
	c.restart(t, "--kill")
	work.awaitMore(t, *writes/4)
	endWrites()
	close(stop)
	pods.Wait()
	work.check(t)
	if n := podWrites.Load(); n < 20 {
		t.Errorf("pods were written %d times only", n)
	}

	var configMaps corev1.ConfigMapList
	var podList corev1.PodList
	for uri, list := range map[string]any{"/api/v1/configmaps": &configMaps, "/api/v1/pods": &podList} {
		if err := json.Unmarshal(direct.get(t, uri).body, list); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range append(cached, passed) {
		steady.Until(t, "state of the cluster in the stores of "+s.name, func() error {
			if err := holds(s.configMaps, configMaps.Items); err != nil {
				return fmt.Errorf("configmaps: %w", err)
			}
			return holds(s.pods, podList.Items)
		})
	}
	for _, s := range cached {
		for _, resource := range []string{"configmaps", "pods"} {
			if syncs, watches, all := s.log.reads(resource); syncs != 1 || watches > 1 {
				t.Errorf("%s: %d syncs and %d watches of %s, want one, and the watch that follows a list:\n%s", s.name,
					syncs, watches, resource, strings.Join(all, "\n"))
			}
		}
	}
	if configMaps.Items == nil || podList.Items == nil {
		t.Errorf("nothing is left to hold")
	}
}
