package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// getFrom sends a GET from one of this host's addresses. code is 0 if ctx ended first.
func (f *fan) getFrom(ctx context.Context, address, token, path string) (code int, retryAfter string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.insecure+path, nil)
	if err != nil {
		f.t.Error(err)
		return 0, ""
	}
	req.Header.Set("User-Agent", proxytest.ClientAgent)
	req.Header.Set("Authorization", "Bearer "+token)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	resp, err := (&http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		if ctx.Err() == nil {
			f.t.Errorf("from %s: %v", address, err)
		}
		return 0, ""
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Retry-After")
}

// TestReviewsOfStrangers: while reviews of hundreds of garbage tokens are unanswered, a client that
// kube-apiserver has accepted before is reviewed, and so is a new client from another address. If
// more than a thousand requests come from one address, the last ones get 429 at once.
func TestReviewsOfStrangers(t *testing.T) {
	t.Parallel()
	up := proxytest.NewServer(t)
	f := startFan(t, up)
	up.Collection(proxytest.ConfigMaps).Put("a", "x", "1")
	var asked sync.Map // the honest clients' tokens
	var hanging atomic.Int64
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	up.SetAllow(func(token, _ string) bool {
		if strings.HasPrefix(token, "garbage") {
			hanging.Add(1)
			<-gate
			return false
		}
		n, _ := asked.LoadOrStore(token, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		return true
	})
	reviews := func(token string) int64 {
		n, ok := asked.Load(token)
		if !ok {
			return 0
		}
		return n.(*atomic.Int64).Load()
	}
	const list = cmsPath + "?resourceVersion=0"
	if code, _ := f.getFrom(t.Context(), "127.0.0.1", "regular", list); code != 200 || reviews("regular") != 1 {
		t.Fatalf("%d, after %d reviews", code, reviews("regular"))
	}

	garbage, stop := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	defer strangers.Wait()
	defer stop()
	var busy, answered atomic.Int64
	flood := func(from, to int) {
		for i := from; i < to; i++ {
			strangers.Go(func() {
				code, retry := f.getFrom(garbage, "127.0.0.1", fmt.Sprint("garbage", i), list)
				if code != http.StatusTooManyRequests {
					answered.Add(1)
					return
				}
				if seconds, err := strconv.Atoi(retry); err != nil || seconds < 5 || seconds > 15 {
					t.Errorf("Retry-After: %q", retry)
				}
				busy.Add(1)
			})
		}
	}
	flood(0, 400)
	f.until("flood", func() bool { return hanging.Load() >= 16 })
	time.Sleep(100 * time.Millisecond) // the rest of the flood may come later

	// In one queue with the garbage tokens, each of these would wait for them.
	for i, c := range []struct{ address, token string }{{"127.0.0.1", "regular"}, {"127.0.0.2", "newcomer"},
		{"127.0.0.1", "regular"}} {
		before, begin := reviews(c.token), time.Now()
		code, _ := f.getFrom(t.Context(), c.address, c.token,
			fmt.Sprintf("/api/v1/namespaces/a%d/configmaps?resourceVersion=0", i))
		if code != 200 || reviews(c.token) != before+1 {
			t.Errorf("%s: %d, after %d reviews beside %d that hang", c.token, code, reviews(c.token)-before,
				hanging.Load())
		}
		t.Logf("%s was answered after %s", c.token, time.Since(begin).Round(time.Millisecond))
	}
	if n := answered.Load(); n != 0 {
		t.Errorf("%d garbage tokens were answered before the honest clients", n)
	}
	flood(400, 1500)
	f.until("refusal", func() bool { return busy.Load() > 0 })
	code, _ := f.getFrom(t.Context(), "127.0.0.1", "regular", "/api/v1/namespaces/b/configmaps?resourceVersion=0")
	if code != 200 || reviews("regular") != 4 {
		t.Errorf("%d, after %d reviews", code, reviews("regular"))
	}
	open()
}
