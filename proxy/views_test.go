package proxy_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// A client of any view, over any protocol and in any encoding, holds what the view has of kube-apiserver's state as
// of the same resourceVersion, whatever happens: writes, namespaces that are relabelled, upstream watches that break,
// lag or have lost history, restarts, and resumes at another replica. What the view has is computed from
// kube-apiserver's decoded objects (views_model_test.go). It is compared at each list, bookmark and event: see
// viewClient.differs and viewClient.change. Random numbers are TEST_SEED's.
//
// These faults of one line were noticed: a quiet event whatever has changed, a quiet DELETED, nothing of what enters
// a client's selector with the same form, drops that are ignored, a DELETED that is whole, owners that are left out,
// notin without absent values, false as a value in protobuf, no 410 when a namespace moves, a consistent list without
// a proof, a bookmark one too high, a list's removals but for the first, a replay without deletions or without its
// last event, deletions of a replay that nobody had, one compressed form for all groups, one form for two views, and
// half of a message of a WebSocket or of DATA.

// viewedKind is a resource that is followed, and all that has happened to it. The world's mutex guards it.
type viewedKind struct {
	*viewKind
	all     *proxytest.Collection
	now     map[string]proxytest.Typed
	history []version
}

// version is one version of an object. object is nil if it was deleted.
type version struct {
	rv     uint64
	key    string
	object tree
}

// state returns the objects as of a resourceVersion.
func (k *viewedKind) state(rv uint64) map[string]version {
	state := make(map[string]version)
	for _, v := range k.history {
		if v.rv > rv {
			break
		}
		if state[v.key] = v; v.object == nil {
			delete(state, v.key)
		}
	}
	return state
}

// front is a server as clients see it.
type front interface {
	// ask returns the answer to a GET, and what makes the client leave.
	ask(target string, w way, watch bool) (*http.Response, func(), error)
	// up reports whether the server has not been told to stop.
	up() bool
	stop()
}

// replica is a place where servers follow one another.
type replica struct{ now atomic.Pointer[front] }

// front returns the server; nil while there is none.
func (r *replica) front() front {
	if at := r.now.Load(); at != nil {
		return *at
	}
	return nil
}

// restart stops the server, and starts another.
func (r *replica) restart(start func() front) {
	if at := r.now.Swap(nil); at != nil {
		(*at).stop()
	}
	r.now.Store(new(start()))
}

// viewWorld is a scripted kube-apiserver, two servers in front of it, and clients.
type viewWorld struct {
	t          *testing.T
	rng        *rand.Rand
	up         *proxytest.Server
	namespaces *proxytest.Collection
	kinds      []*viewedKind
	views      []*viewModel
	replicas   [2]*replica
	start      func() front
	clients    []*viewClient
	listers    []*viewClient // which never watch
	bookmarks  bool          // each client is awaited until a bookmark has come
	pause      time.Duration // the most between two steps
	most       int           // steps while little has happened, where the machine's pace decides that; 0 for no more
	held       []*proxytest.Stream
	wrongs     atomic.Int64

	mu      sync.Mutex // held from a write until it has been noted
	spaces  map[string]labels.Set
	moves   int // how often namespaces were relabelled
	writes  int
	counted map[string]int
}

// newViewWorld returns a world without servers and clients. large says that lists of pods may be large
// enough to be compressed.
func newViewWorld(t *testing.T, rng *rand.Rand, up *proxytest.Server, large bool) *viewWorld {
	w := &viewWorld{t: t, rng: rng, up: up, replicas: [2]*replica{{}, {}},
		spaces: make(map[string]labels.Set), counted: make(map[string]int)}
	w.namespaces = up.Add(proxytest.Resource{Version: "v1", Name: "namespaces", Kind: "Namespace"})
	for _, k := range []*viewKind{podKind, configMapKind} {
		all := up.AddTyped(k.Resource)
		w.kinds = append(w.kinds, &viewedKind{viewKind: k, all: all, now: make(map[string]proxytest.Typed)})
	}
	up.OnClients(func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, "only caches answer here", http.StatusTooManyRequests)
	})
	for i := range 6 {
		w.views = append(w.views, randomView(rng, fmt.Sprintf("v%d", i), []*viewKind{podKind, configMapKind}))
	}
	team := &viewModel{Config: view.Config{Name: "team", Resources: []view.Part{
		{Resource: "pods", Namespaces: view.Namespaces{Labels: "team=a"}}}}}
	w.views = append(w.views, team)
	for _, v := range []*viewModel{team, leanView(), {}} {
		w.listers = append(w.listers, w.client(way{gzip: true, protocol: overHTTP1}, w.kinds[0], v))
	}
	for _, ns := range viewNamespaces {
		w.relabel(ns)
	}
	for range 30 {
		w.write()
	}
	if large {
		pod := &corev1.Pod{ObjectMeta: randomMeta(rng, "a", "large")}
		pod.Annotations["large"] = strings.Repeat("large ", 30_000)
		w.put(w.kinds[0], pod)
	}
	return w
}

var viewNamespaces = []string{"a", "b", "c"}

// options are those of the servers.
func (w *viewWorld) options(o *proxy.Options) {
	for _, v := range w.views {
		o.View.Views = append(o.View.Views, v.Config)
	}
	o.Lane.BookmarkInterval, o.DrainDuration = 5*time.Second, 100*time.Millisecond
	o.Cached.Tuning.MostAlone = 0
}

// client returns a client of all objects.
func (w *viewWorld) client(how way, k *viewedKind, v *viewModel) *viewClient {
	c := &viewClient{way: how, w: w, kind: k, view: v, target: "/api/v1/" + k.Name + "?",
		labels: labels.Everything(), fields: fields.Everything(), rng: rand.New(rand.NewPCG(w.rng.Uint64(), 0))}
	c.in("")
	return c
}

// in makes the client one of a namespace; "" is all.
func (c *viewClient) in(namespace string) {
	path := "/api/v1/"
	if c.namespace = namespace; namespace != "" {
		path += "namespaces/" + namespace + "/"
	}
	if name := c.view.Name; name != "" {
		path = "/views/" + string(name) + path
	}
	c.target = path + c.kind.Name + "?"
}

// join adds clients for each way, in random views with random selectors, and has them run until ctx ends.
func (w *viewWorld) join(ctx context.Context, running *sync.WaitGroup, each int) {
	all := append([]*viewModel{leanView(), {}}, w.views...)
	for i := range each * len(ways()) {
		c := w.client(ways()[i%len(ways())], w.kinds[w.rng.IntN(len(w.kinds))], all[w.rng.IntN(len(all))])
		c.number = i
		if w.rng.IntN(3) == 0 {
			c.in(oneOf(w.rng, viewNamespaces...))
		}
		if w.rng.IntN(2) == 0 {
			c.labels, _ = labels.Parse(oneOf(w.rng, "l=1", "l!=1", "m", "!m", "m in (a,b),l=2"))
			c.target += "labelSelector=" + url.QueryEscape(c.labels.String()) + "&"
		}
		if w.rng.IntN(3) == 0 {
			c.fields, _ = fields.ParseSelector(oneOf(w.rng, c.kind.selectors...))
			c.target += "fieldSelector=" + url.QueryEscape(c.fields.String()) + "&"
		}
		w.clients = append(w.clients, c)
		running.Go(func() { c.run(ctx) })
	}
}

// write changes, creates or deletes an object.
func (w *viewWorld) write() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	k := w.kinds[w.rng.IntN(len(w.kinds))]
	namespace, name := oneOf(w.rng, viewNamespaces...), oneOf(w.rng, "o1", "o2", "o3", "o4")
	key := namespace + "/" + name
	o, there := k.now[key]
	switch n := w.rng.IntN(10); {
	case there && n < 2:
		delete(k.now, key)
		k.history = append(k.history, version{rv: k.all.Delete(namespace, name), key: key})
		return
	case !there || n < 5:
		o = k.random(w.rng, randomMeta(w.rng, namespace, name))
	}
	k.now[key] = w.put(k, k.beaten(o, w.writes))
}

// put writes an object.
func (w *viewWorld) put(k *viewedKind, o proxytest.Typed) proxytest.Typed {
	o = k.all.PutTyped(o)
	object := decoded(o)
	k.history = append(k.history, version{versionOf(object), o.GetNamespace() + "/" + o.GetName(), object})
	return o
}

// relabel gives a namespace a label, and waits until the servers know. A client that one has told of later changes
// before that, and that resumes at another, would keep what it has: see deploy/VIEWS.md.
func (w *viewWorld) relabel(namespace string) {
	w.release()
	w.listAll()
	w.mu.Lock()
	w.moves++
	w.spaces[namespace] = labels.Set{"team": oneOf(w.rng, "a", "b")}
	w.namespaces.Put("", namespace, "", "team", w.spaces[namespace]["team"])
	w.mu.Unlock()
	w.listAll()
}

// listAll lists pods at each server.
func (w *viewWorld) listAll() {
	for _, r := range w.replicas {
		at := r.front()
		if at == nil {
			continue
		}
		for _, c := range w.listers {
			steady.UntilTrue(w.t, c.target, func() bool { return c.list(at, "", w.written(c.kind)) })
		}
	}
}

// relabelled returns how often namespaces were relabelled.
func (w *viewWorld) relabelled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.moves
}

// written returns the resourceVersion of the latest write to a kind.
func (w *viewWorld) written(k *viewedKind) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return k.history[len(k.history)-1].rv
}

// version returns what an object became with a resourceVersion; nil if nothing happened to it then.
func (w *viewWorld) version(k *viewedKind, key string, rv uint64) *version {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, ok := slices.BinarySearchFunc(k.history, rv, func(v version, rv uint64) int { return cmp.Compare(v.rv, rv) })
	if !ok || k.history[i].key != key {
		return nil
	}
	return &k.history[i]
}

func (w *viewWorld) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counted[what]++
}

// fault lets something go wrong.
func (w *viewWorld) fault() {
	open := w.up.Streams()
	if len(open) == 0 {
		return
	}
	stream := open[w.rng.IntN(len(open))]
	switch w.rng.IntN(10) {
	case 0, 1:
		w.relabel(oneOf(w.rng, viewNamespaces...))
	case 2:
		stream.End()
	case 3:
		stream.Abort()
	case 4, 5: // who follows it has to list
		for _, k := range w.kinds {
			k.all.Compact()
		}
		stream.Abort()
	case 6, 7:
		stream.Hold()
		w.held = append(w.held, stream)
	case 8:
		w.release()
		w.up.Bump(1)
	case 9:
		w.replicas[w.rng.IntN(len(w.replicas))].restart(w.start)
	}
}

// release lets what was held back come.
func (w *viewWorld) release() {
	for _, st := range w.held {
		st.Release()
	}
	w.held = nil
}

// settle waits until each client holds the state.
func (w *viewWorld) settle() {
	w.t.Helper()
	w.release()
	rv := w.up.RV()
	for _, c := range w.clients {
		steady.Until(w.t, fmt.Sprintf("state as of %d at %v", rv, c), func() error {
			if w.wrongs.Load() > 0 {
				return nil
			}
			for _, k := range w.kinds {
				k.all.SendBookmark(proxytest.WatchList, proxytest.Watch)
			}
			return c.settled(rv)
		})
	}
}

// run has clients come, and things happen, and waits in between until each client holds the state.
func (w *viewWorld) run(each, steps int, pause time.Duration) {
	w.pause = pause
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, r := range w.replicas {
		r.restart(w.start)
	}
	w.join(ctx, &running, each)
	w.settle()
	for i := 1; (i <= steps || i <= w.most && w.showsLittle()) && w.wrongs.Load() == 0; i++ {
		for range w.rng.IntN(4) {
			w.write()
		}
		if w.rng.IntN(3) == 0 {
			w.fault()
		}
		if w.rng.IntN(2) == 0 {
			w.clients[w.rng.IntN(len(w.clients))].cut(w.rng.IntN(2) == 0)
		}
		time.Sleep(time.Duration(w.rng.Int64N(int64(w.pause)))) //testlint:allow timer a pace, which nothing asserts
		if i%20 == 0 || i >= steps {
			w.settle()
		}
	}
}

func (w *viewWorld) showsLittle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(rare(w.counted)) > 0
}

// inBubble is a server without sockets.
type inBubble struct {
	*bubble.Proxy
	stopped atomic.Bool
}

func (f *inBubble) up() bool { return !f.stopped.Load() }

func (f *inBubble) stop() {
	f.stopped.Store(true)
	f.Proxy.Stop()
}

func (f *inBubble) ask(target string, w way, watch bool) (*http.Response, func(), error) {
	ask := bubble.Request{Target: target, HTTP2: w.protocol == overHTTP2}
	for name, values := range w.header(watch) {
		for _, value := range values {
			ask.Header = append(ask.Header, name, value)
		}
	}
	c := f.Send(ask)
	if c.Response().StatusCode == 0 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	return c.Response(), c.Leave, nil
}

// TestViewClients runs servers in virtual time. A client's protocol is what the server knows of it.
func TestViewClients(t *testing.T) {
	rng, counted := steady.Rand(t), make(map[string]int)
	for i := range 12 {
		round := rand.New(rand.NewPCG(rng.Uint64(), 0))
		synctest.Test(t, func(t *testing.T) {
			w := newViewWorld(t, round, proxytest.NewBubbleServer(t), i%3 == 0)
			w.start = func() front { return &inBubble{Proxy: bubble.Start(t, w.up, w.options)} }
			w.bookmarks = true
			w.run(2, 60, time.Second)
			for what, n := range w.counted {
				counted[what] += n
			}
		})
		if t.Failed() {
			break
		}
	}
	showsMuch(t, counted, "compressed lists")
}

// showsMuch fails the test unless enough has happened to clients.
func showsMuch(t *testing.T, counted map[string]int, also ...string) {
	t.Helper()
	if seldom := rare(counted, also...); len(seldom) > 0 && !t.Failed() {
		t.Errorf("%s: this shows little", strings.Join(seldom, ", "))
	}
}

// rare returns what has happened too seldom to clients, and how often.
func rare(counted map[string]int, also ...string) (seldom []string) {
	for _, way := range ways() {
		also = append(also, fmt.Sprint(way))
	}
	for _, what := range append(also, "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "lists", "resumes", "410") {
		if counted[what] < 5 {
			seldom = append(seldom, fmt.Sprintf("%d %s", counted[what], what))
		}
	}
	return seldom
}

// onSockets is a server with ports.
type onSockets struct {
	*fan
	http1, http2 *http.Client
	stopped      atomic.Bool
}

func (f *onSockets) up() bool { return !f.stopped.Load() }

func (f *onSockets) stop() {
	f.stopped.Store(true)
	f.fan.stop()
}

func (f *onSockets) ask(target string, w way, watch bool) (*http.Response, func(), error) {
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.secure+target, nil)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	req.Header = w.header(watch)
	req.Header.Set("Authorization", "Bearer "+bubble.ClientToken)
	client := f.http1
	if w.protocol == overHTTP2 {
		client = f.http2
	}
	resp, err := client.Do(req)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return resp, func() { cancel(); _ = resp.Body.Close() }, nil
}

// TestViewClientsOnSockets is the same over TLS and its protocols, with fewer clients.
func TestViewClientsOnSockets(t *testing.T) {
	t.Parallel()
	w := newViewWorld(t, rand.New(rand.NewPCG(steady.Rand(t).Uint64(), 0)), proxytest.NewServer(t), true)
	w.start = func() front {
		over1 := unsafe()
		over1.DisableCompression = true
		t.Cleanup(over1.CloseIdleConnections)
		f := startFan(t, w.up, both, w.options)
		return &onSockets{fan: f, http1: &http.Client{Transport: over1}, http2: http2Client(t)}
	}
	w.most = 1000
	w.run(2, 100, 20*time.Millisecond)
	showsMuch(t, w.counted)
}
