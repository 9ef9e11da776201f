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
	"time"

	"k8s.io/client-go/rest"

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

// TestFlip logs how long a thousand informers take from kube-apiserver to a cache and back, from the change
// of the file on. None of them lists again.
//
//testlint:allow elapsed it is logged
func TestFlip(t *testing.T) {
	const clients = 1000
	c := privateCluster(t)
	createNamespaces(t, c.direct(t), "fallen")
	file := filepath.Join(t.TempDir(), "config.yaml")
	mode := func(mode string) {
		t.Helper()
		text := "apiVersion: watchfan.io/v1alpha1\nkind: WatchfanConfiguration\nclients:\n- {mode: " + mode + "}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mode("observe")
	p := runWatchfan(t, binary(t, "WATCHFAN_PLAIN_BIN", "watchfan"), c.Ready.Kubeconfigs["admin"], "--config", file)
	p.waitReady(t)
	admin := p.admin(t)
	var all []*witness
	for i := range clients {
		f := &witness{name: fmt.Sprintf("client %d", i)}
		all = append(all, f)
		f.inform(t, t.Context(), &rest.Config{Host: "https://" + p.Ports.Secure, BearerToken: c.token(t, "admin"),
			TLSClientConfig: rest.TLSClientConfig{Insecure: true, NextProtos: [][]string{{"h2"}, {"http/1.1"}}[i%2]}})
	}
	have := func(metric string) {
		t.Helper()
		steady.Until(t, metric, func() error {
			if n := admin.metric(t, metric); n != clients {
				return fmt.Errorf("%v of %d", n, clients)
			}
			return nil
		})
	}
	have("watchfan_passthrough_streams")
	work := &churn{target: c.direct(t), namespaces: []string{"fallen"}, rate: churnRate, names: 24,
		seed: steady.Rand(t).Uint64()}
	endWork := work.start(t)
	defer endWork()
	for range 3 {
		for _, to := range []string{"serve", "observe"} {
			work.awaitMore(t, 10*churnRate) // a watch goes on for 3 s before it moves again
			began := time.Now()
			mode(to)
			have(map[string]string{"serve": "watchfan_watchers", "observe": "watchfan_passthrough_streams"}[to])
			t.Logf("%s: %d informers after %s", to, clients, time.Since(began).Round(time.Millisecond))
		}
	}
	for _, f := range all {
		if n := f.lists(); n != 1 {
			t.Errorf("%s has listed %d times", f.name, n)
		}
	}
	if o := observedBy(t, admin); o.Events == 0 || len(o.Differences) > 0 {
		t.Errorf("%s", o.Verdict)
	}
}
