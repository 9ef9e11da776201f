package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// crowd is many watches. It only counts their bytes and ends.
type crowd struct {
	cancel context.CancelFunc
	open   atomic.Int64
	bytes  atomic.Int64
	silent atomic.Int64 // watches that have brought nothing yet
	wg     sync.WaitGroup
}

// gather begins n watches at once, the i-th of uri(i).
func gather(t *testing.T, d *target, n int, uri func(i int) string) *crowd {
	t.Helper()
	return gatherFrom(t, n, func(i int) (*target, string) { return d, uri(i) })
}

// gatherFrom begins n watches at once, the i-th as of(i) says.
func gatherFrom(t *testing.T, n int, of func(i int) (way *target, uri string)) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{cancel: cancel}
	t.Cleanup(c.leave)
	var opening sync.WaitGroup
	var failed atomic.Pointer[error]
	c.silent.Store(int64(n))
	opening.Add(n)
	for i := range n {
		c.wg.Go(func() {
			way, uri := of(i)
			resp, err := way.open(ctx, http.MethodGet, uri, nil, "")
			if err == nil && resp.StatusCode != http.StatusOK {
				resp.Body.Close()
				err = fmt.Errorf("watch %s: %s", uri, resp.Status)
			}
			if err != nil {
				failed.Store(&err)
				opening.Done()
				return
			}
			defer resp.Body.Close()
			c.open.Add(1)
			defer c.open.Add(-1)
			opening.Done()
			buf := make([]byte, 4<<10)
			for first := true; ; first = false {
				k, err := resp.Body.Read(buf)
				c.bytes.Add(int64(k))
				if first && k > 0 {
					c.silent.Add(-1)
				}
				if err != nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					return
				}
			}
		})
	}
	opening.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	return c
}

func (c *crowd) leave() {
	c.cancel()
	c.wg.Wait()
}

// upstreamWatches counts kube-apiserver's watches of a resource over all namespaces, including
// those of its own informers.
func upstreamWatches(t testing.TB, d *target, resource string) int {
	t.Helper()
	return int(d.metric(t, "apiserver_longrunning_requests", `verb="WATCH"`,
		fmt.Sprintf("resource=%q", resource), `scope="cluster"`))
}

// upstreamWatchesOf counts kube-apiserver's watches of a resource in any scope.
func upstreamWatchesOf(t testing.TB, d *target, resource string) int {
	t.Helper()
	return int(d.metric(t, "apiserver_longrunning_requests", `verb="WATCH"`, fmt.Sprintf("resource=%q", resource)))
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
