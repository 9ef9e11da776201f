package e2e_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

const (
	fallen    = "/api/v1/namespaces/fallen/configmaps"
	posted    = "/api/v1/namespaces/posted/configmaps" // which nobody watches: they are as many as the test is long
	churnRate = 20                                     // writes a second
)

// TestFallback: a watchfan is killed again and again under informers over HTTP/2 and HTTP/1.1, under watches
// over WebSockets, and under writes. The fall-back on the same host takes its port, and gives it back. Nobody
// lists again. Each client sees each event of kube-apiserver's history once, and in order. A write has happened
// if it was acknowledged, and never twice.
//
// One exception is client-go's: if its connection breaks with another error than the usual ones (broken pipe, when it
// was just sending), it lists, and so do all informers that share the connection. A kill of any server does that.
//
// With -tags nightly there are 1,000 clients and ten kills, and the times are bounded. Two minutes lie between two
// kills, because client-go's backoff grows until then.
//
//testlint:allow elapsed with -tags nightly, which is about time
func TestFallback(t *testing.T) {
	parallel(t)
	clients, kills, between, program := 12, cmp.Or(*killsWanted, 2), 20, binary(t, "WATCHFAN_BIN", "watchfan")
	if nightly {
		clients, kills, between = 1000, cmp.Or(*killsWanted, 10), 2*60*churnRate
		program = binary(t, "WATCHFAN_PLAIN_BIN", "watchfan")
	}
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "fallen", "posted")
	secure, admin := proxytest.ReservedPort(t), proxytest.ReservedPort(t)
	tierArgs := []string{"--permit-port-sharing", "--secure-port=" + secure, "--admin-port=" + admin, "--insecure-port=0"}
	tier := mortalWatchfan(t, program, c, tierArgs...)
	tier.waitReady(t)
	fallback := runWatchfan(t, program, c.Ready.Kubeconfigs["admin"], "--fallback-for=http://127.0.0.1:"+admin+"/readyz",
		"--secure-port="+secure, "--insecure-port=0")
	passed := func() float64 { return fallback.admin(t).metric(t, "watchfan_passthrough_streams") }

	truth := &witness{name: "kube-apiserver's own watch"}
	var following sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); following.Wait() })
	following.Go(func() { truth.follow(ctx, direct, false) })
	all := []*witness{}
	base, token := "https://127.0.0.1:"+secure, c.token(t, "admin")
	for i := range clients {
		f := &witness{name: fmt.Sprintf("client %d", i)}
		all = append(all, f)
		if i%3 == 2 {
			f.name += " over a WebSocket"
			d := newTarget("socket", base, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
			d.token = token
			following.Go(func() { f.follow(ctx, d, true) })
			continue
		}
		protocols := [][]string{{"h2", "http/1.1"}, {"http/1.1"}}[i%3]
		f.name += " over " + protocols[0]
		f.inform(t, ctx, &rest.Config{Host: base, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true, NextProtos: protocols}})
	}
	// all have seen what is written now.
	live := func() time.Duration {
		t.Helper()
		began := time.Now()
		rv := direct.create(t, fallen, `{"metadata":{"generateName":"probe-"}}`)
		for _, f := range append(all, truth) {
			steady.Until(t, "event at "+f.name, func() error { return f.reached(rv) })
		}
		return time.Since(began)
	}
	for _, f := range all {
		steady.UntilTrue(t, "list of "+f.name, func() bool { return f.lists() > 0 })
	}
	live()
	work := &churn{target: direct, namespaces: []string{"fallen"}, rate: churnRate, names: 24, seed: steady.Rand(t).Uint64()}
	endWork := work.start(t)
	defer endWork()
	through := newTarget("tier", base, &tls.Config{InsecureSkipVerify: true})
	through.token = token
	posts := startPosts(t, through)

	for kill := range kills {
		work.awaitMore(t, between)
		started := fallback.admin(t).metric(t, "watchfan_passthrough_watches_total", `reason="fallback"`)
		killed := time.Now()
		tier.kill()
		steady.Until(t, "clients at the fall-back", func() error {
			if n := passed(); n != float64(clients) {
				return fmt.Errorf("%v of %d", n, clients)
			}
			return nil
		})
		live()
		away := time.Since(killed)
		started = fallback.admin(t).metric(t, "watchfan_passthrough_watches_total", `reason="fallback"`) - started
		work.awaitMore(t, 20)
		tier = mortalWatchfan(t, program, c, tierArgs...)
		tier.waitReady(t)
		ready := time.Now()
		steady.Until(t, "clients at home", func() error {
			if n, home := passed(), tier.admin(t).metric(t, "watchfan_watchers"); n != 0 || home != float64(clients) {
				return fmt.Errorf("%v are at the fall-back, %v at home, of %d", n, home, clients)
			}
			return nil
		})
		home := time.Since(ready)
		live()
		t.Logf("kill %d: all live after %s, with %v watches started; at home after %s", kill+1, away.Round(time.Millisecond), started,
			home.Round(time.Millisecond))
		if nightly && (away > 10*time.Second || home > 90*time.Second) {
			t.Errorf("kill %d: that is more than 10 s, or 90 s", kill+1)
		}
	}
	posts.check(t, direct)
	endWork()
	live()
	cancel()
	history, again := truth.events(), 0
	for _, f := range all {
		if lists := f.lists(); lists > 1 && lists <= 1+int(f.unretried.Load()) {
			again++
			continue
		}
		if got := f.events(); !isPrefix(got, history) || f.lists() != 1 {
			t.Errorf("%s has listed %d times, and has %d events; kube-apiserver had %d: %s", f.name, f.lists(), len(got), len(history),
				firstDifference(got, history))
		}
	}
	t.Logf("%d clients have seen %d events each; %d informers listed again, because client-go did not retry", clients-again, len(history), again)
}

func isPrefix(got, history []seen) bool {
	return len(got) > 0 && len(got) <= len(history) && slices.Equal(got, history[:len(got)])
}

func firstDifference(got, want []seen) string {
	for i := range got {
		if i >= len(want) || got[i] != want[i] {
			return fmt.Sprintf("event %d is %v, want %v", i, got[i], want[min(i, len(want)-1)])
		}
	}
	return "no difference"
}

// seen is an event as a client has seen it. Its resourceVersion says which object's it is.
type seen struct {
	kind byte // the first of ADDED, MODIFIED, DELETED
	rv   uint64
}

// witness follows the ConfigMaps of a namespace from when it has none.
type witness struct {
	name   string
	log    *requestLog  // of an informer; nil for others
	listed atomic.Int64 // times, by others

	// unretried counts an informer's requests and streams that broke so that client-go lists.
	unretried atomic.Int64

	mu    sync.Mutex
	seen  []seen
	since uint64 // where it resumes
}

// lists returns how often it has listed.
func (f *witness) lists() int {
	if f.log == nil {
		return int(f.listed.Load())
	}
	lists, _, _ := f.log.reads("configmaps")
	return lists
}

func (f *witness) see(kind byte, resourceVersion string) {
	rv, _ := strconv.ParseUint(resourceVersion, 10, 64)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = rv
	if kind != 'B' {
		f.seen = append(f.seen, seen{kind, rv})
	}
}

func (f *witness) events() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// reached returns an error until the witness has seen an event of this resourceVersion or a later one.
func (f *witness) reached(rv uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since < rv {
		return fmt.Errorf("at %d, not %d", f.since, rv)
	}
	return nil
}

// inform follows with an informer.
func (f *witness) inform(t *testing.T, ctx context.Context, config *rest.Config) {
	t.Helper()
	f.log = new(requestLog)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		f.log.next = roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil {
				resp.Body = &brokenBody{resp.Body, f}
			} else if !utilnet.IsConnectionRefused(err) {
				f.broke(err)
			}
			return resp, err
		})
		return f.log
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("fallen")).Core().V1().ConfigMaps().Informer()
	version := func(o any) string { return o.(metav1.Object).GetResourceVersion() }
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f.see('A', version(o)) },
		UpdateFunc: func(_, o any) { f.see('M', version(o)) },
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok { // of a list
				o = last.Obj
			}
			f.see('D', version(o))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(ctx)
	steady.UntilTrue(t, "first list", informer.HasSynced)
}

// broke notes how a request or its stream broke.
func (f *witness) broke(err error) {
	if !utilnet.IsProbableEOF(err) && !utilnet.IsTimeout(err) && !errors.Is(err, context.Canceled) {
		f.unretried.Add(1)
	}
}

// brokenBody is a response's body, and notes how it breaks.
type brokenBody struct {
	io.ReadCloser
	f *witness
}

func (b *brokenBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.f.broke(err)
	}
	return n, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// follow lists once, and watches until ctx ends.
func (f *witness) follow(ctx context.Context, d *target, socket bool) {
	defer d.close()
	listed := false
	for ; ctx.Err() == nil; pace(ctx.Done(), 50*time.Millisecond) {
		if !listed {
			resp, err := d.try(http.MethodGet, fallen, nil, "")
			var list corev1.ConfigMapList
			if err != nil || json.Unmarshal(resp.body, &list) != nil || resp.status != http.StatusOK {
				continue
			}
			f.see('B', list.ResourceVersion)
			f.listed.Add(1)
			listed = true
		}
		listed = !errors.Is(f.watch(ctx, d, socket), errExpired)
	}
}

var errExpired = errors.New("410")

// watch follows one watch to its end.
func (f *witness) watch(ctx context.Context, d *target, socket bool) error {
	f.mu.Lock()
	uri := fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d", fallen, f.since)
	f.mu.Unlock()
	header := http.Header{}
	if socket {
		asked := &http.Request{Header: header}
		asked.URL, _ = asked.URL.Parse(d.base)
		proxytest.AskForWebSocket(asked)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := d.open(ctx, http.MethodGet, uri, header, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := resp.Body
	switch {
	case socket && resp.StatusCode == http.StatusSwitchingProtocols:
		context.AfterFunc(ctx, func() { _ = resp.Body.Close() }) // net/http has handed the connection over
		body = proxytest.NewMessageReader(resp.Body, false)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s", resp.Status)
	}
	for in := proxytest.NewEventReader(body, false); ; {
		line, err := in.Next()
		if err != nil {
			return err
		}
		var event struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		if event.Type == "ERROR" {
			return errExpired
		}
		f.see(event.Type[0], event.Object.ResourceVersion)
	}
}

// posts are writes that create an object each, whose name kube-apiserver chooses: a write that happened twice
// would make two.
type posts struct {
	stop         func()
	acknowledged []bool // by number
}

// startPosts writes through the tier until the posts are checked.
func startPosts(t *testing.T, d *target) *posts {
	stop, done := make(chan struct{}), make(chan struct{})
	p := &posts{}
	p.stop = sync.OnceFunc(func() { close(stop); <-done })
	t.Cleanup(p.stop)
	go func() {
		defer close(done)
		for pace(stop, 20*time.Millisecond) {
			_, err := d.write(http.MethodPost, posted, "application/json",
				fmt.Sprintf(`{"metadata":{"generateName":"post-","labels":{"post":"%d"}}}`, len(p.acknowledged)))
			p.acknowledged = append(p.acknowledged, err == nil)
		}
	}()
	return p
}

// check compares the writes with what there is.
func (p *posts) check(t *testing.T, direct *target) {
	t.Helper()
	p.stop()
	var list corev1.ConfigMapList
	if err := json.Unmarshal(direct.get(t, posted).body, &list); err != nil {
		t.Fatal(err)
	}
	made := make([]int, len(p.acknowledged))
	for _, o := range list.Items {
		n, err := strconv.Atoi(o.Labels["post"])
		if err != nil || !strings.HasPrefix(o.Name, "post-") {
			t.Fatalf("%s: %v", o.Name, err)
		}
		made[n]++
	}
	acknowledged := 0
	for n, ok := range p.acknowledged {
		if ok {
			acknowledged++
		}
		if made[n] > 1 || ok && made[n] != 1 {
			t.Errorf("write %d, acknowledged: %v, happened %d times", n, ok, made[n])
		}
	}
	if acknowledged < 20 {
		t.Errorf("only %d writes of %d were acknowledged", acknowledged, len(made))
	}
	t.Logf("%d writes through the tier, %d acknowledged, %d made", len(made), acknowledged, len(list.Items))
}
