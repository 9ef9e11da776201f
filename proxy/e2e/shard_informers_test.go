package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestShardsIgnored: where kube-apiserver ignores shardSelector, client-go's informers of two shards
// hold everything together and nothing twice, and each is sent half of the events. Meanwhile objects
// come, go and change their labels, watches break and resume, kube-apiserver restarts, and watchfan
// is killed.
func TestShardsIgnored(t *testing.T) {
	needsPlain(t)
	parallel(t)
	c := privateCluster(t, endWatches...)
	direct, rng := c.direct(t), steady.Rand(t)
	if direct.enables(t, shardedListAndWatch) {
		t.Skip("kube-apiserver serves shardSelector")
	}
	shardObjects(t, direct)
	first := mortalWatchfan(t, c)
	first.waitReady(t)
	relay := proxytest.NewRelay(t, first.ports.Insecure)
	s := startShardInformers(t, relay.Address())
	s.check(t, direct, "after the first list")
	churnShards(t, direct, rng, 100)
	s.check(t, direct, "after changes")
	measureShards(t, direct, first)

	begun := s.begun.Load()
	if relay.Reset() < len(s.informers) {
		t.Error("there were not as many connections as informers")
	}
	churnShards(t, direct, rng, 50)
	s.check(t, direct, "after the watches have resumed")
	if n := s.begun.Load(); n != begun {
		t.Errorf("%d informers have begun anew, where watches resume", n-begun)
	}
	c.restart(t)
	churnShards(t, direct, rng, 50)
	s.check(t, direct, "after kube-apiserver has restarted")
	c.restart(t, "--kill")
	churnShards(t, direct, rng, 50)
	s.check(t, direct, "after kube-apiserver was killed")

	begun = s.begun.Load()
	if err := first.End(syscall.SIGKILL, steady.Patience); err != nil {
		t.Fatal(err)
	}
	churnShards(t, direct, rng, 50)
	c.command(t, "compact")
	c.restart(t) // nobody knows what has happened, so all have to list
	p := privateWatchfan(t, c)
	relay.Redirect(p.ports.Insecure)
	s.check(t, direct, "after watchfan was killed")
	if n := s.begun.Load() - begun; n < int64(len(s.informers)) {
		t.Errorf("%d informers have listed again, want %d", n, len(s.informers))
	}
	late := startShardInformers(t, relay.Address())
	churnShards(t, direct, rng, 50)
	s.check(t, direct, "at the end")
	late.check(t, direct, "of late informers")

	// A list says that it is a shard, and one that passes through does not.
	const all = "/api/v1/configmaps?resourceVersion=0"
	half := withShard(all, halves("uid")[0])
	info := `"shardInfo":{"selector":"` + halves("uid")[0] + `"}`
	if body := string(p.plain(t).get(t, half).body); !strings.Contains(body, info) {
		t.Errorf("got %.300s", body)
	}
	if body := string(p.plain(t).get(t, half+"&pretty=true").body); strings.Contains(body, "shardInfo") {
		t.Errorf("a list that passes through says that it is a shard: %.300s", body)
	}
}

// mortalWatchfan starts a watchfan that the test kills.
func mortalWatchfan(t *testing.T, c *cluster) *watchfan {
	t.Helper()
	p, err := startWatchfan(binary(t, "WATCHFAN_BIN", "watchfan"), t.TempDir(), c.Ready.Kubeconfigs["admin"])
	if err != nil {
		t.Fatal(err)
	}
	p.own = c
	t.Cleanup(func() {
		_ = p.End(syscall.SIGKILL, steady.Patience) // it has ended, if all went well
		if t.Failed() {
			t.Logf("the first watchfan's log:\n%s", proxytest.Tail(p.Log, 60))
		}
	})
	return p
}

// shardInformers are informers of both halves of the ConfigMaps and of all, with and without a label
// selector.
type shardInformers struct {
	http.RoundTripper
	informers []shardInformer
	begun     atomic.Int64 // requests for the state: lists, and watches with initial events
}

// shardInformer holds one shard of the ConfigMaps.
type shardInformer struct {
	half   int // 2 for all
	labels string
	store  cache.Store
}

// RoundTrip counts the requests for the state.
func (s *shardInformers) RoundTrip(req *http.Request) (*http.Response, error) {
	if q := req.URL.Query(); q.Get("watch") == "" || q.Get("sendInitialEvents") != "" {
		s.begun.Add(1)
	}
	return s.RoundTripper.RoundTrip(req)
}

// startShardInformers starts informers of the watchfan at an address. They end with the test.
func startShardInformers(t *testing.T, address string) *shardInformers {
	t.Helper()
	s := new(shardInformers)
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://" + address,
		WrapTransport: func(next http.RoundTripper) http.RoundTripper { s.RoundTripper = next; return s }})
	if err != nil {
		t.Fatal(err)
	}
	for i, selector := range append(halves("uid"), "") {
		for _, labels := range []string{"", "l=1"} {
			factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, "", func(o *metav1.ListOptions) {
				o.ShardSelector, o.LabelSelector = selector, labels
			})
			informer := factory.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Informer()
			factory.Start(t.Context().Done())
			t.Cleanup(factory.Shutdown)
			s.informers = append(s.informers, shardInformer{i, labels, informer.GetStore()})
		}
	}
	return s
}

// check waits until the informers hold what kube-apiserver has.
func (s *shardInformers) check(t *testing.T, direct *target, when string) {
	t.Helper()
	steady.Until(t, "state of the cluster "+when, func() error { return s.compare(t, direct) })
}

func (s *shardInformers) compare(t *testing.T, direct *target) error {
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON(direct.get(t, "/api/v1/configmaps").body); err != nil {
		return err
	}
	together := make(map[string]int) // objects of both halves, by label selector
	for _, in := range s.informers {
		want := make(map[string]string)
		for _, o := range list.Items {
			if (in.half == 2 || inHalf(in.half, string(o.GetUID()))) && (in.labels == "" || o.GetLabels()["l"] == "1") {
				want[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
			}
		}
		got := make(map[string]string)
		for _, v := range in.store.List() {
			o := v.(*unstructured.Unstructured)
			got[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
		}
		if len(want) == 0 || !maps.Equal(got, want) {
			return fmt.Errorf("half %d, labels %q: got %v, want %v", in.half, in.labels, got, want)
		}
		if together[in.labels] += len(got); in.half == 2 && together[in.labels] != 2*len(got) {
			return fmt.Errorf("labels %q: the halves have %d objects, and all are %d", in.labels,
				together[in.labels]-len(got), len(got))
		}
	}
	return nil
}

// measureShards makes and changes objects, and compares how many events watchfan has written to the
// watch of each half with those of the objects that the half has. These are about half of all: the
// hash puts each object into either half with the same probability.
func measureShards(t *testing.T, direct *target, p *watchfan) {
	t.Helper()
	const objects, uri = 150, "/api/v1/namespaces/a/configmaps"
	selectors := append(halves("uid"), "")
	before, err := p.writtenToShards(t)
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		name := fmt.Sprint("measured-", i)
		direct.create(t, uri, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name))
		direct.patch(t, uri+"/"+name, `{"data":{"k":"1"}}`)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(direct.get(t, uri).body, &list); err != nil {
		t.Fatal(err)
	}
	has := map[string]uint64{selectors[2]: objects}
	for _, o := range list.Items {
		for i, selector := range selectors[:2] {
			if strings.HasPrefix(o.Name, "measured-") && inHalf(i, string(o.UID)) {
				has[selector]++
			}
		}
	}
	if lower := float64(has[selectors[0]]); math.Abs(lower-objects/2) > 5*math.Sqrt(objects)/2 {
		t.Errorf("the lower half has %v of %d objects: this is five standard deviations from half of them", lower, objects)
	}
	steady.Until(t, "events of the measured objects", func() error {
		written, err := p.writtenToShards(t)
		for _, selector := range selectors {
			got, want := written[selector]-before[selector], 2*has[selector]
			if got < want || got > want+2 { // there may be bookmarks
				err = errors.Join(err, fmt.Errorf("%d events of the shard %q, want %d", got, selector, want))
			}
		}
		return err
	})
	t.Logf("of %d objects, the halves have %d and %d", objects, has[selectors[0]], has[selectors[1]])
}

// writtenToShards returns how many events have been written to the watches of ConfigMaps without a
// label selector, of which there has to be one for each shardSelector.
func (p *watchfan) writtenToShards(t *testing.T) (map[string]uint64, error) {
	t.Helper()
	var list diagnose.WatcherList
	if err := json.Unmarshal(p.admin(t).get(t, "/debug/watchers?format=json").body, &list); err != nil {
		return nil, err
	}
	written := make(map[string]uint64)
	for _, w := range list.Watchers {
		if w.LabelSelector == "" && strings.HasSuffix(w.Resource, "configmaps") {
			if _, twice := written[w.ShardSelector]; twice {
				return nil, fmt.Errorf("there are two watches of the shard %q", w.ShardSelector)
			}
			written[w.ShardSelector] = w.Events
		}
	}
	if len(written) != 3 {
		return nil, fmt.Errorf("there are watches of these shards: %v", written)
	}
	return written, nil
}
