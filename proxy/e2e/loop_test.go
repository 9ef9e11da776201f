package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// upstreamAt returns a kubeconfig whose cluster is at an address, without TLS.
func upstreamAt(t *testing.T, address string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x",`+
		`"context":{"cluster":"x"}}],"clusters":[{"name":"x","cluster":{"server":"http://%s"}}]}`, address)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLoop: a watchfan whose upstream is itself, or another watchfan whose upstream is the first,
// is not ready and says why. Requests are refused, and none hangs.
func TestLoop(t *testing.T) {
	parallel(t)
	for _, length := range []int{1, 2} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			fans, relays := make([]*watchfan, length), make([]*proxytest.Relay, length)
			for i := range fans {
				relays[i] = proxytest.NewRelay(t, "")
				fans[i] = watchfanAs(t, upstreamAt(t, relays[i].Address()))
			}
			for i, r := range relays {
				r.Redirect(fans[(i+1)%length].ports.Insecure)
			}
			for _, p := range fans {
				steady.Until(t, "answer of /readyz", func() error {
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
		})
	}
}
