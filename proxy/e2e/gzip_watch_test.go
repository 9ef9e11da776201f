package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// TestGzipTwins: a watch is one gzip member with the bytes that kube-apiserver sends uncompressed,
// in every representation, for every selector, live and from history. TestOracle checks the same
// for every way to ask for ConfigMaps.
func TestGzipTwins(t *testing.T) {
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	theirs := c.direct(t)
	ways := p.ways(t, c.token(t, "reader"))
	createNamespaces(t, theirs, "gzip")
	const pods = "/api/v1/pods?watch=1&resourceVersion=%d&timeoutSeconds=%d%s"
	rv := theirs.version(t, "/api/v1/pods")
	watches := watchChurn(t, theirs, "gzip")
	type twins struct {
		theirs, ours string
		compressed   bool
	}
	var pairs []twins
	for i, accepts := range []string{jsonType, protoType, partial,
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"} {
		for j, selector := range []string{"", "&fieldSelector=spec.nodeName%3Dnode-1",
			"&fieldSelector=status.phase%3DRunning", "&labelSelector=l%3D1", "&labelSelector=!l",
			"&" + oneName + "p-3"} {
			if i >= 2 && (j == 1 || j == 2) {
				continue // metadata alone does not tell, and kube-apiserver answers
			}
			for late := range 2 {
				name := fmt.Sprint(i, j, late)
				uri := fmt.Sprintf(pods, rv, watches.lasting(late), selector)
				pairs = append(pairs, twins{"theirs " + name, "ours " + name, !strings.Contains(uri, oneName)})
				watches.await(late)
				watches.read("theirs "+name, theirs, uri, accepts)
				watches.read("ours "+name, ways[(i+j+late)%len(ways)].zipped(), uri, accepts)
			}
		}
	}
	bodies, writes := watches.end()
	total := 0
	for _, pair := range pairs {
		if got, want := bodies[pair.ours], bodies[pair.theirs]; !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, and they are not the %d of kube-apiserver", pair.ours, len(got), len(want))
		}
		if pair.compressed {
			total += len(bodies[pair.ours])
		}
	}
	admin := p.admin(t)
	wire, plain := admin.metric(t, "watchfan_gzip_delivered_bytes_total"),
		admin.metric(t, "watchfan_gzip_plain_bytes_total")
	t.Logf("%d writes, %d bytes in %d watches; %v bytes of gzip stand for %v", writes, total, len(pairs), wire, plain)
	if writes < 20 || total < 100_000 || plain < float64(total) || wire > plain/2 {
		t.Error("this test measures nothing")
	}
}

// churnWatches are whole watches while the pods of a namespace change. Early ones begin at once, and
// late ones, which have to catch up, three seconds later. All end at about the same time.
type churnWatches struct {
	t       *testing.T
	began   time.Time
	stop    chan struct{}
	written chan int
	reads   sync.WaitGroup

	mu     sync.Mutex
	bodies map[string][]byte // by name
}

// watchChurn changes pods through d until end is called.
func watchChurn(t *testing.T, d *target, namespace string) *churnWatches {
	c := &churnWatches{t: t, began: time.Now(), stop: make(chan struct{}), written: make(chan int), bodies: make(map[string][]byte)}
	go func() { c.written <- podChurn(t, d, namespace, c.stop) }()
	return c
}

// lasting returns how many seconds a watch lasts; late is 1 for a late one, else 0.
func (c *churnWatches) lasting(late int) int { return 8 - 3*late }

// await waits until it is time for early or for late watches.
func (c *churnWatches) await(late int) {
	time.Sleep(time.Until(c.began.Add(time.Duration(late) * 3 * time.Second)))
}

// read reads a watch to its end.
func (c *churnWatches) read(name string, d *target, uri, accepts string) {
	c.reads.Go(func() {
		body, err := readWatch(c.t.Context(), d, uri, accepts)
		if err != nil {
			c.t.Errorf("%s %s as %s: %v", d.name, uri, accepts, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies[name] = body
	})
}

// end returns what the watches have brought, and the number of writes. All see the same, because
// nothing changes for a while before their end.
func (c *churnWatches) end() (bodies map[string][]byte, writes int) {
	time.Sleep(time.Until(c.began.Add(4 * time.Second)))
	close(c.stop)
	writes = <-c.written
	c.reads.Wait()
	return c.bodies, writes
}

// oneName begins a selector of one object.
const oneName = "fieldSelector=metadata.name%3D"

// readWatch returns the uncompressed bytes of a whole watch, which must be one gzip member if d
// asks for gzip, and more than one object.
func readWatch(ctx context.Context, d *target, uri, accepts string) ([]byte, error) {
	resp, err := d.open(ctx, http.MethodGet, uri, accept(accepts), "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	compressed := d.gzip && !strings.Contains(uri, oneName)
	if got := resp.Header.Get("Content-Encoding"); resp.StatusCode != http.StatusOK || compressed != (got == "gzip") {
		return nil, fmt.Errorf("status %d, Content-Encoding %q", resp.StatusCode, got)
	}
	body := resp.Body
	if compressed {
		body = proxytest.NewMemberReader(body)
	}
	return io.ReadAll(body)
}

// TestGzipCut: for its client, a stream that breaks off ends with an error.
func TestGzipCut(t *testing.T) {
	c := sharedCluster(t)
	p, err := startWatchfan(binary(t, "WATCHFAN_BIN", "watchfan"), t.TempDir(), c.Ready.Kubeconfigs["admin"])
	if err != nil {
		t.Fatal(err)
	}
	p.waitReady(t)
	var cut []*recording
	for _, way := range p.ways(t, c.token(t, "reader")) {
		r := way.zipped().watch(t, "/api/v1/namespaces?watch=1&allowWatchBookmarks=true")
		r.wait(t, 2)
		cut = append(cut, r)
	}
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Exited
	for _, r := range cut {
		<-r.done
		if r.err == nil {
			t.Errorf("%s has ended without an error", r.target.name)
		}
	}
}

// uncompressed counts the watches that client-go's transport uncompressed by itself.
type uncompressed struct {
	next    http.RoundTripper
	watches atomic.Int64
}

func (u *uncompressed) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := u.next.RoundTrip(req)
	if err == nil && resp.Uncompressed && req.URL.Query().Get("watch") == "true" {
		u.watches.Add(1)
	}
	return resp, err
}

// TestGzipInformer: client-go asks for gzip by itself, and its informers hold the cluster's state.
func TestGzipInformer(t *testing.T) {
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	theirs := c.direct(t)
	createNamespaces(t, theirs, "gzip-informer")
	p.waitReady(t)
	var counted uncompressed
	config := &rest.Config{Host: "http://" + p.ports.Insecure, QPS: 100, Burst: 100}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { counted.next = next; return &counted })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("gzip-informer"))
	podInformer := factory.Core().V1().Pods().Informer()
	factory.Start(t.Context().Done())
	eventually(t, 20*time.Second, "sync", func() error {
		if !podInformer.HasSynced() {
			return fmt.Errorf("not synced")
		}
		return nil
	})
	stop, written := make(chan struct{}), make(chan int)
	go func() { written <- podChurn(t, theirs, "gzip-informer", stop) }()
	time.Sleep(3 * time.Second)
	close(stop)
	if writes := <-written; writes < 20 {
		t.Errorf("%d writes", writes)
	}
	eventually(t, 10*time.Second, "the informer's state", func() error {
		list, err := client.CoreV1().Pods("gzip-informer").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		return holds[corev1.Pod](podInformer, list.Items)
	})
	if counted.watches.Load() == 0 {
		t.Error("no watch was compressed")
	}
}
