package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// upstreamAt returns a kubeconfig whose cluster is at a port of loopback, without TLS.
func upstreamAt(t *testing.T, port int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x",`+
		`"context":{"cluster":"x"}}],"clusters":[{"name":"x","cluster":{"server":"http://127.0.0.1:%d"}}]}`, port)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLoop: a watchfan whose upstream is itself, or another watchfan whose upstream is the first,
// is not ready and says why. Requests are refused; none hangs, and none becomes many.
func TestLoop(t *testing.T) {
	t.Parallel()
	for _, length := range []int{1, 2} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			ports := make([]int, length)
			for i := range ports {
				ports[i] = proxytest.FreePort(t)
			}
			fans := make([]*watchfan, length)
			for i := range fans {
				kubeconfig := upstreamAt(t, ports[(i+1)%length])
				p, err := startWatchfan(binary(t, "WATCHFAN_BIN", "watchfan"), t.TempDir(), kubeconfig,
					fmt.Sprintf("--insecure-port=%d", ports[i]))
				if err != nil {
					t.Fatal(err)
				}
				fans[i] = p
				t.Cleanup(func() {
					if err := p.stop(); err != nil {
						t.Error(err)
					}
				})
			}
			requests := func() (n float64) {
				for _, p := range fans {
					n += p.admin(t).metric(t, "watchfan_identified_requests_total") +
						p.admin(t).metric(t, "watchfan_rejected_requests_total")
				}
				return n
			}
			for _, p := range fans {
				eventually(t, 30*time.Second, "/readyz", func() error {
					resp := p.admin(t).get(t, "/readyz")
					if resp.status != http.StatusInternalServerError ||
						!strings.Contains(string(resp.body), "requests come back to this watchfan") {
						return fmt.Errorf("%d %s", resp.status, resp.body)
					}
					return nil
				})
				if log := proxytest.Tail(p.Log, 100); !strings.Contains(log, "name kube-apiserver's own address") {
					t.Errorf("the log does not say what to do:\n%s", log)
				}
			}
			before, began := requests(), time.Now()
			way := fans[0].plain(t)
			for _, uri := range []string{"/version", "/api/v1/pods", "/api/v1/pods?watch=1",
				"/api/v1/namespaces/a/pods/b", "/api/v1/pods?resourceVersion=0",
				"/apis/example.com/v1/things?watch=1"} {
				resp := way.get(t, uri)
				if resp.status != http.StatusLoopDetected || !strings.Contains(string(resp.body), `"kind":"Status"`) ||
					!strings.Contains(string(resp.body), `"code":508`) {
					t.Errorf("%s: %d %s", uri, resp.status, resp.body)
				}
			}
			if post, err := way.try(http.MethodPost, "/api/v1/namespaces", nil, "{}"); err != nil ||
				post.status != http.StatusLoopDetected {
				t.Errorf("a write: %v, %d %s", err, post.status, post.body)
			}
			time.Sleep(2 * time.Second)
			// Seven requests are the test's. Those of the lanes, and what the lanes ask before,
			// come again with a backoff.
			n, took := requests()-before, time.Since(began)
			t.Logf("%v requests in %s", n, took)
			if most := 150 + 20*took.Seconds(); n > most {
				t.Errorf("%v requests in %s, want at most %v", n, took, most)
			}
		})
	}
}
