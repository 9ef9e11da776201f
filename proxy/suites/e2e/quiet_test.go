package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

const quietConfig = `apiVersion: watchfan.io/v1alpha1
kind: WatchfanConfiguration
views:
  - name: quiet
    quiet: true
    resources:
      - resource: configmaps
        keep: [data.phase]
        where: data.phase notin (done)
        namespaces: {labels: team=quiet}
`

// visible is what a client of the view sees of a ConfigMap.
func visible(c *corev1.ConfigMap) string {
	return fmt.Sprintf("%s/%s %v %v", c.Namespace, c.Name, c.Labels, c.Data)
}

// quietState returns what the view has of kube-apiserver's ConfigMaps.
func quietState(t *testing.T, theirs *target) []string {
	var spaces corev1.NamespaceList
	var list corev1.ConfigMapList
	for uri, into := range map[string]any{"/api/v1/namespaces?labelSelector=team%3Dquiet": &spaces, "/api/v1/configmaps": &list} {
		if err := json.Unmarshal(theirs.get(t, uri).body, into); err != nil {
			t.Fatal(err)
		}
	}
	var state []string
	for _, c := range list.Items {
		in := slices.ContainsFunc(spaces.Items, func(n corev1.Namespace) bool { return n.Name == c.Namespace })
		if phase, ok := c.Data["phase"]; in && phase != "done" {
			if c.Data = nil; ok {
				c.Data = map[string]string{"phase": phase}
			}
			state = append(state, visible(&c))
		}
	}
	slices.Sort(state)
	return state
}

// quietSocket holds what the messages of a WebSocket say.
type quietSocket struct {
	mu      sync.Mutex
	objects map[string]string // by key
	synced  bool
}

func (s *quietSocket) state() ([]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.objects)), s.synced
}

// run watches until ctx ends. Each watch begins with the state.
func (s *quietSocket) run(ctx context.Context, d *target) {
	header := http.Header{}
	asked := &http.Request{Header: header}
	asked.URL, _ = asked.URL.Parse(d.base)
	proxytest.AskForWebSocket(asked)
	for proxytest.Sleep(ctx, 10*time.Millisecond) { //testlint:allow timer a pace, which nothing asserts
		s.mu.Lock()
		s.objects, s.synced = make(map[string]string), false
		s.mu.Unlock()
		resp, err := d.open(ctx, http.MethodGet,
			"/api/v1/configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", header, "")
		if err != nil {
			continue
		}
		done := context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
		in := proxytest.NewEventReader(proxytest.NewMessageReader(resp.Body, false), false)
		for line, err := in.Next(); err == nil; line, err = in.Next() {
			s.take(line)
		}
		done()
		resp.Body.Close()
	}
}

func (s *quietSocket) take(line []byte) {
	var event struct {
		Type   string
		Object corev1.ConfigMap
	}
	_ = json.Unmarshal(line, &event) // what is no event changes nothing
	o, key := &event.Object, event.Object.Namespace+"/"+event.Object.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	switch event.Type {
	case "ADDED", "MODIFIED":
		s.objects[key] = visible(o)
	case "DELETED":
		delete(s.objects, key)
	case "BOOKMARK":
		s.synced = true
	}
}

// TestQuietViews: unmodified informers, in JSON over HTTP/2 and in protobuf over HTTP/1.1, a WebSocket and kubectl
// hold in a view that selects and is quiet what the view has of kube-apiserver's state, whatever is written and
// however namespaces are labelled. An informer is told of no update in which it sees nothing new.
func TestQuietViews(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(quietConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	p := privateWatchfan(t, c, "--config", file)
	p.waitReady(t)
	theirs := c.direct(t)
	createNamespaces(t, theirs, "quiet-a", "quiet-b")
	label := func(namespace, team string) {
		theirs.patch(t, "/api/v1/namespaces/"+namespace, fmt.Sprintf(`{"metadata":{"labels":{"team":%q}}}`, team))
	}
	label("quiet-a", "quiet")
	direct, ours := programWays(t, c, p)
	ours.target = ours.in("quiet")
	kubeconfig := ours.kubeconfig(t, &api.AuthInfo{Token: direct.token})

	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var vain atomic.Int64
	socket := &quietSocket{}
	running.Go(func() { socket.run(ctx, ours.target) })
	stores := []func() ([]string, bool){socket.state}
	for contentType, protocols := range map[string][]string{jsonType: {"h2"}, protoType: {"http/1.1"}} {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		config.ContentType, config.NextProtos = contentType, protocols
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		informer := informers.NewSharedInformerFactory(client, 0).Core().V1().ConfigMaps().Informer()
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, now any) {
			if visible(old.(*corev1.ConfigMap)) == visible(now.(*corev1.ConfigMap)) {
				vain.Add(1)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, func() (state []string, synced bool) {
			for _, o := range informer.GetStore().List() {
				state = append(state, visible(o.(*corev1.ConfigMap)))
			}
			return state, informer.HasSynced()
		})
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	same := func() {
		t.Helper()
		for _, state := range stores {
			steady.Until(t, "informer's state", func() error {
				got, synced := state()
				slices.Sort(got)
				if want := quietState(t, theirs); !synced || !slices.Equal(got, want) {
					return fmt.Errorf("got %q, want %q", got, want)
				}
				return nil
			})
		}
	}
	rng, there := steady.Rand(t), make(map[string]bool)
	write := func() {
		for range 60 {
			uri := fmt.Sprintf("/api/v1/namespaces/quiet-%s/configmaps", []string{"a", "b"}[rng.IntN(2)])
			name := fmt.Sprintf("c%d", rng.IntN(8))
			body := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"l":"%d"}},"data":{"phase":%q,"noise":"%d"}}`, name, rng.IntN(2),
				[]string{"new", "runs", "done"}[rng.IntN(3)], rng.Int())
			switch key := uri + "/" + name; {
			case !there[key]:
				theirs.create(t, uri, body)
				there[key] = true
			case rng.IntN(4) == 0:
				theirs.remove(t, key)
				delete(there, key)
			case rng.IntN(2) == 0:
				theirs.patch(t, key, body)
			default: // nobody in the view sees that
				theirs.patch(t, key, fmt.Sprintf(`{"data":{"noise":"%d"}}`, rng.Int()))
			}
		}
	}
	write()
	same()
	if n := vain.Load(); n > 0 {
		t.Errorf("%d updates have nothing new", n)
	}
	label("quiet-b", "quiet")
	write()
	same()
	label("quiet-a", "other")
	write()
	same()
	kubectl := newKubectl(t, t.TempDir(), ours.name, "--kubeconfig", kubeconfig)
	out, err := kubectl.run(t.Context(), strings.Fields("get configmaps --all-namespaces --no-headers"))
	if want := quietState(t, theirs); err != nil || strings.Count(out, "quiet-") != len(want) {
		t.Errorf("kubectl: %v\n%s\nwant %q", err, out, want)
	}
}
