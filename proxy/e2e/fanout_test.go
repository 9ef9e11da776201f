package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// crowd is many watches. It only counts how many are open.
type crowd struct {
	cancel context.CancelFunc
	open   atomic.Int64
	wg     sync.WaitGroup
}

// gather begins n watches at once, the i-th of uri(i).
func gather(t *testing.T, d *target, n int, uri func(i int) string) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{cancel: cancel}
	t.Cleanup(c.leave)
	opened := make(chan error)
	for i := range n {
		c.wg.Go(func() {
			resp, err := d.open(ctx, http.MethodGet, uri(i), nil, "")
			if err != nil {
				opened <- err
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				opened <- fmt.Errorf("watch %s: %s", uri(i), resp.Status)
				return
			}
			c.open.Add(1)
			defer c.open.Add(-1)
			opened <- nil
			_, _ = io.Copy(io.Discard, resp.Body)
		})
	}
	var failed error
	for range n {
		failed = errors.Join(failed, <-opened)
	}
	if failed != nil {
		t.Fatal(failed)
	}
	return c
}

func (c *crowd) leave() {
	c.cancel()
	c.wg.Wait()
}

// upstreamWatches counts kube-apiserver's watches of a resource, including those of its own informers.
func upstreamWatches(t testing.TB, d *target, resource string, labels ...string) int {
	t.Helper()
	return int(d.metric(t, "apiserver_longrunning_requests", append(labels, `verb="WATCH"`, fmt.Sprintf("resource=%q", resource))...))
}

// TestOneWatchUpstream: "During that, kube-apiserver's own metrics show one watch for the resource
// (apiserver_longrunning_requests), whatever N is".
func TestOneWatchUpstream(t *testing.T) {
	parallel(t)
	const n = 300
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "fanout")
	before := upstreamWatches(t, direct, "configmaps")
	p := privateWatchfan(t, c)
	p.waitReady(t)
	if now := upstreamWatches(t, direct, "configmaps"); now != before {
		t.Fatalf("kube-apiserver has %d watches of configmaps before the first client, want %d", now, before)
	}
	work := &churn{target: direct, namespaces: []string{"fanout"}, rate: 100, names: 24, seed: steady.Rand(t).Uint64()}
	stop := work.start(t)
	admin := p.admin(t)
	base := direct.version(t, "/api/v1/namespaces/fanout/configmaps")
	all := selections([]string{"fanout", "fanout-b"})
	watchers := gather(t, p.plain(t), n, func(i int) string {
		s := all[i%20] // not the /watch/ ones
		return s.path + "?watch=1&" + s.query + []string{fmt.Sprintf("&resourceVersion=%d", base), "&resourceVersion=0",
			"&allowWatchBookmarks=true"}[i%3]
	})

	// Short watches have proved that the consistent states were current, one for many clients. They
	// end by themselves.
	one := func() error {
		if now := upstreamWatches(t, direct, "configmaps") - before; now != 1 {
			return fmt.Errorf("kube-apiserver has %d watches of configmaps for %d clients, want 1", now, n)
		}
		return nil
	}
	steady.Until(t, "end of the proofs", one)
	work.awaitMore(t, 200)
	if err := one(); err != nil {
		t.Error(err)
	}
	stop()
	work.check(t)
	if open := watchers.open.Load(); open != n {
		t.Errorf("%d of %d watches are still open", open, n)
	}
	if served := admin.metric(t, "watchfan_watchers"); served != n {
		t.Errorf("watchfan_watchers is %v, want %d: others were passed through", served, n)
	}
	watchers.leave()
	admin.awaitWatchers(t, 0) // all clients have gone
}
