//go:build nightly

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestObserveCost logs how much of a processor watches take that pass through, and those that are
// compared too.
func TestObserveCost(t *testing.T) {
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "cost")
	for _, mode := range []string{`"off"`, "observe", `"off"`, "observe"} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		text := "apiVersion: watchfan.io/v1alpha1\nkind: WatchfanConfiguration\n" +
			"clients:\n- {mode: " + mode + ", resources: [configmaps]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := runWatchfan(t, binary(t, "WATCHFAN_PLAIN_BIN", "watchfan"), c.Ready.Kubeconfigs["admin"], "--config", file,
			"--log-level=info")
		p.waitReady(t)
		admin, ways := p.admin(t), p.ways(t, c.token(t, "reader"))
		ctx, cancel := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		const watches, writes = 100, 1000
		for i := range watches {
			clients.Go(func() { ways[i%3].drink(ctx, "/api/v1/namespaces/cost/configmaps?") })
		}
		steady.Until(t, "watches", func() error {
			if n := admin.metric(t, "watchfan_passthrough_streams"); n != watches {
				return fmt.Errorf("%v pass through", n)
			}
			return nil
		})
		makeConfigMap(t, direct, "cost", "a", "")
		before := admin.metric(t, "process_cpu_seconds_total")
		for i := range writes {
			direct.do(t, http.MethodPatch, "/api/v1/namespaces/cost/configmaps/a",
				http.Header{"Content-Type": {"application/merge-patch+json"}}, fmt.Sprintf(`{"data":{"n":"%d","pad":%q}}`, i, strings.Repeat("x", 3000)))
		}
		steady.Until(t, "comparison", func() error {
			if n := observedBy(t, admin).Events; mode == "observe" && n < watches*writes*9/10 {
				return fmt.Errorf("%d events", n)
			}
			return nil
		})
		used := admin.metric(t, "process_cpu_seconds_total") - before
		t.Logf("%s: %.2f s of processors, %.1f µs for each event", mode, used, used/(watches*writes)*1e6)
		cancel()
		clients.Wait()
		direct.do(t, http.MethodDelete, "/api/v1/namespaces/cost/configmaps/a", nil, "")
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
}
