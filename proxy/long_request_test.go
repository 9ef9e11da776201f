package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// longTarget is a list with selectors of 20 KiB.
var longTarget = cmsPath + "?labelSelector=" + strings.Repeat("!k,", 20<<10/3) + "!k"

// TestLargeSelectors: kube-apiserver compares each event with each requirement of the watches that
// pass through. So one user has a few watches with large selectors, for as long as they last.
func TestLargeSelectors(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	var open, most atomic.Int64
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		if len(r.URL.RawQuery) <= 8<<10 {
			return
		}
		if n := open.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer open.Add(-1)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	ask := func(body string) (code int, leave context.CancelFunc) {
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.insecure+longTarget+"&watch=1", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.StatusCode, leave
	}
	var leaves []context.CancelFunc
	for {
		code, leave := ask([]string{"", "{}"}[len(leaves)%2])
		defer leave()
		if code == http.StatusTooManyRequests {
			break
		}
		if leaves = append(leaves, leave); code != http.StatusOK || len(leaves) > 10 {
			t.Fatalf("watch %d got %d", len(leaves), code)
		}
	}
	leaves[0]()
	for deadline := time.Now().Add(proxytest.Patience); ; time.Sleep(10 * time.Millisecond) {
		code, leave := ask("")
		defer leave()
		if code == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of a watch that has ended is not free")
		}
	}
	if most.Load() != int64(len(leaves)) {
		t.Errorf("%d watches with large selectors were open at a time, want %d", most.Load(), len(leaves))
	}
}

// TestLongRequests: kube-apiserver parses long selectors before it authenticates. So watchfan first
// asks whether an unknown token is accepted, and sends one long request of a client at a time.
func TestLongRequests(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	var long, most, reviews atomic.Int64
	release := make(chan struct{})
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
			reviews.Add(1)
			if r.Header.Get("Authorization") != "Bearer good" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"somebody"}}}`))
		case len(r.URL.RawQuery) > 8<<10:
			if n := long.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-release
			long.Add(-1)
		}
	}))
	ask := func(token string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.insecure+longTarget, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := ask("garbage"); code != http.StatusUnauthorized || long.Load() != 0 {
		t.Errorf("a garbage token got %d, and %d long requests went upstream", code, long.Load())
	}
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			if code := ask("good"); code != http.StatusOK {
				t.Errorf("got %d", code)
			}
		})
	}
	for deadline := time.Now().Add(proxytest.Patience); long.Load() == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // no other may arrive meanwhile
	close(release)
	clients.Wait()
	if most.Load() != 1 {
		t.Errorf("%d long requests of one client were under way at a time", most.Load())
	}
	if reviews.Load() != 2 {
		t.Errorf("%d reviews for two tokens", reviews.Load())
	}
}

// A request that is refused while it waits to pass through has the same Audit-Id in its response and in
// the audit log.
func TestPassthroughRefusedAudit(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	file := filepath.Join(t.TempDir(), "audit.log")
	f := startFront(t, upstreamFunc(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}), func(o *proxy.Options, _ *clientcmdapi.Config) {
		o.Audit.AuditLogPath, o.Audit.AuditLogMode = file, "blocking"
	})
	var want []string
	answered := func(resp *http.Response, err error, code int) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != code {
			t.Errorf("got %s, want %d", resp.Status, code)
		}
		want = append(want, resp.Header.Get("Audit-Id"))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.insecure+longTarget, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer garbage")
	resp, err := http.DefaultClient.Do(req)
	answered(resp, err, http.StatusUnauthorized)

	c, err := net.Dial("tcp", f.insecure)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = io.WriteString(c, "POST "+cmsPath+" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	if err != nil {
		t.Fatal(err)
	}
	resp, err = http.ReadResponse(bufio.NewReader(c), nil)
	answered(resp, err, http.StatusBadRequest)

	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range bytes.Lines(log) {
		var event struct{ AuditID string }
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		got = append(got, event.AuditID)
	}
	if !slices.Equal(got, want) || slices.Contains(want, "") {
		t.Errorf("the log has %q, the responses %q", got, want)
	}
}
