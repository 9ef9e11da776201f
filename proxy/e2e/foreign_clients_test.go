package e2e_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// TestIdleConnections: a connection on which a watch has ended waits 90 s for the next request, as
// at kube-apiserver. A connection that brings nothing is closed without a byte of an answer.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	c, p := sharedCluster(t), sharedWatchfan(t)
	p.waitReady(t)
	for _, way := range []*target{c.as(t, "reader"), p.secure(t, c.token(t, "reader"))} {
		dial := func(t *testing.T) net.Conn {
			to, err := url.Parse(way.base)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := tls.Dial("tcp", to.Host, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			_ = conn.SetDeadline(time.Now().Add(100 * time.Second))
			return conn
		}
		t.Run("after a watch/"+way.name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t)
			answers := bufio.NewReader(conn)
			for _, uri := range []string{"/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1", "/version"} {
				if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", uri, way.token); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(answers, nil)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("GET %s: %v, %v, want 200", uri, resp, err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Fatal(err)
				}
				time.Sleep(36 * time.Second) // longer than a head may take
			}
		})
		t.Run("silent/"+way.name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t)
			began := time.Now()
			if got, err := io.ReadAll(conn); len(got) > 0 || err != nil {
				t.Errorf("got %q, %v, want a silent end", got, err)
			}
			if lasted := time.Since(began); lasted < 30*time.Second || lasted > 30*time.Second+hangTime(15*time.Second) {
				t.Errorf("ended after %s, want about 32 s", lasted)
			}
		})
	}
}

// TestReconnectInOutage: a client that ends its watch and begins it again is served while
// kube-apiserver is away, as its open watch would be, and a stranger is not.
func TestReconnectInOutage(t *testing.T) {
	t.Parallel()
	c := privateCluster(t, endWatches...)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "reconnect")
	uri := "/api/v1/namespaces/reconnect/configmaps"
	rv := makeConfigMap(t, direct, "reconnect", "x", "")
	user := p.secure(t, c.token(t, "reader"))
	stream := user.watch(t, uri+"?watch=1&allowWatchBookmarks=true&resourceVersion=0")
	stream.wait(t, 1)
	if err := c.Halt(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(12 * time.Second) // longer than a yes to a request is believed
	stream.stop()
	for _, query := range []string{"&resourceVersion=" + strconv.FormatUint(rv, 10), "&resourceVersion=0"} {
		again, err := user.tryWatch(t.Context(), uri+"?watch=1&allowWatchBookmarks=true"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if again.status != http.StatusOK {
			t.Errorf("%s while kube-apiserver is away: %d, want 200", query, again.status)
		}
		again.stop()
	}
	for what, way := range map[string]*target{"another client": p.secure(t, c.token(t, "user")), "another resource": user} {
		other := uri
		if way == user {
			other = "/api/v1/namespaces/reconnect/pods"
		}
		if resp := way.get(t, other+"?watch=1&resourceVersion=0&timeoutSeconds=1"); resp.status == http.StatusOK {
			t.Errorf("%s: 200 while kube-apiserver is away", what)
		}
	}
	if err := c.Begin(); err != nil {
		t.Fatal(err)
	}
}

// TestCacheOfNamespaces: a cache with informers for 20 namespaces and three resources costs
// kube-apiserver few proofs, because informers that begin within a moment share them.
func TestCacheOfNamespaces(t *testing.T) {
	t.Parallel()
	const namespaces = 20
	c := sharedCluster(t)
	p := plainWatchfan(t, c)
	p.waitReady(t)
	admin, direct := p.admin(t), c.direct(t)
	var names []string
	for i := range namespaces {
		names = append(names, fmt.Sprintf("cache-%d", i))
	}
	createNamespaces(t, direct, names...)
	for _, resource := range []string{"configmaps", "pods", "services"} { // the lanes are there
		p.secure(t, c.token(t, "reader")).watch(t, "/api/v1/"+resource+"?watch=1&allowWatchBookmarks=true&resourceVersion=0").stop()
	}
	proofs := func() float64 { return admin.metric(t, "watchfan_freshness_proofs_total") }
	before := proofs()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://" + p.ports.Secure, BearerToken: c.token(t, "reader"),
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	var synced []cache.InformerSynced
	for _, name := range names {
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(name))
		core := factory.Core().V1()
		synced = append(synced, core.ConfigMaps().Informer().HasSynced, core.Pods().Informer().HasSynced, core.Services().Informer().HasSynced)
		factory.Start(ctx.Done())
		time.Sleep(15 * time.Millisecond) // longer than a proof takes
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		t.Fatal("not synced")
	}
	n, lasted := proofs()-before, time.Since(began)
	t.Logf("%d informers synced in %s with %v proofs", len(synced), lasted.Round(time.Millisecond), n)
	if most := 3 * (2 + lasted.Seconds()/0.05); n > most { // a proof of each resource every 50 ms
		t.Errorf("%v proofs for %d informers, want at most %.0f in %s", n, len(synced), most, lasted)
	}
}
