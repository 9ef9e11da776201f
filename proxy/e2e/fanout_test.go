package e2e_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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

// TestOneWatchUpstream: "During that, kube-apiserver's own metrics show one watch for the resource
// (apiserver_longrunning_requests), whatever N is".
func TestOneWatchUpstream(t *testing.T) {
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "fanout")
	before := upstreamWatches(t, direct, "configmaps")
	p := privateWatchfan(t, c)
	p.waitReady(t)
	if now := upstreamWatches(t, direct, "configmaps"); now != before {
		t.Fatalf("kube-apiserver has %d watches of configmaps before the first client, want %d", now, before)
	}
	work := &churn{target: direct, namespaces: []string{"fanout"}, rate: *writes, names: 24, seed: *seed}
	stop, written := make(chan struct{}), make(chan error, 1)
	begin := time.Now()
	go func() { written <- work.run(stop) }()

	admin := p.admin(t)
	base := direct.version(t, "/api/v1/namespaces/fanout/configmaps")
	all := selections([]string{"fanout", "fanout-b"})
	var watchers *crowd
	opened := time.Now()
	watchers = gather(t, p.plain(t), *fanOut, func(i int) string {
		s := all[i%20] // not the /watch/ ones
		return s.path + "?watch=1&" + s.query + []string{fmt.Sprintf("&resourceVersion=%d", base), "&resourceVersion=0",
			"&allowWatchBookmarks=true"}[i%3]
	})
	took := time.Since(opened)

	// Short watches have proved that the consistent states were current, one for many clients. They
	// end by themselves.
	time.Sleep(4 * time.Second)
	eventually(t, 5*time.Second, "the proofs' end", func() error {
		if n := upstreamWatches(t, direct, "configmaps") - before; n != 1 {
			return fmt.Errorf("%d watches upstream", n)
		}
		return nil
	})
	delivered := admin.metric(t, "watchfan_delivered_events_total")
	for range 10 {
		if n := upstreamWatches(t, direct, "configmaps") - before; n != 1 {
			t.Errorf("kube-apiserver has %d watches of configmaps for %d clients, want 1", n, watchers.open.Load())
		}
		time.Sleep(time.Duration(200+rand.IntN(100)) * time.Millisecond)
	}
	delivered = admin.metric(t, "watchfan_delivered_events_total") - delivered
	close(stop)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	work.check(t, time.Since(begin))
	if n := watchers.open.Load(); n != int64(*fanOut) {
		t.Errorf("%d of %d watches are still open", n, *fanOut)
	}
	if n := admin.metric(t, "watchfan_watchers"); n != float64(*fanOut) {
		t.Errorf("watchfan_watchers is %v, want %d: others were passed through", n, *fanOut)
	}
	t.Logf("%d watches opened in %s; %.0f deliveries in the 3 s of measuring; %d MB in all; RSS %d MB", *fanOut,
		took.Round(time.Millisecond),
		delivered, watchers.bytes.Load()>>20, p.residentMemory(t)>>20)
	watchers.leave()
	admin.awaitWatchers(t, 0) // all clients have gone
}
