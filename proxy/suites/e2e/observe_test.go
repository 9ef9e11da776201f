package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// observedReport is what /debug/observed says.
type observedReport struct {
	Verdict       string
	Events, Lists int
	Differences   map[string]int
	Skipped       map[string]int
	Recent        []json.RawMessage
}

func observedBy(t *testing.T, admin *target) (o observedReport) {
	t.Helper()
	resp := admin.get(t, "/debug/observed?format=json")
	if err := json.Unmarshal(resp.body, &o); err != nil {
		t.Fatalf("%v: %s", err, resp.body)
	}
	return o
}

// TestObserve: "Clients are observed before they are served: what kube-apiserver answers them is what
// caches would answer. A change of the configuration file moves open watches there and back, and no
// informer lists again."
func TestObserve(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	mode := func(mode string) {
		t.Helper()
		text := "apiVersion: watchfan.io/v1alpha1\nkind: WatchfanConfiguration\n" +
			"clients:\n- {mode: " + mode + ", resources: [configmaps, pods]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mode("serve")
	p := privateWatchfan(t, c, "--config", file)
	p.waitReady(t)
	direct, admin := c.direct(t), p.admin(t)
	createNamespaces(t, direct, "observed", "observed-b")
	plain := &rest.Config{Host: "http://" + p.Ports.Insecure,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	secure := &rest.Config{Host: "https://" + p.Ports.Secure, BearerToken: c.token(t, "reader"),
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig: rest.ContentConfig{AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
			ContentType: "application/vnd.kubernetes.protobuf"}}

	for _, uri := range []string{"/api/v1/configmaps", "/api/v1/pods"} {
		p.plain(t).warmAs(t, uri, jsonType, protoType)
	}
	mode("observe") // the informers' first watches, which are lists too, pass through
	steady.UntilTrue(t, "lists that pass through", func() bool {
		return !proxytest.FromCache(p.plain(t).get(t, "/api/v1/configmaps?resourceVersion=0").header)
	})
	sets := []*informerSet{startInformers(t, "plain", plain), startInformers(t, "secure", secure)}
	for _, s := range sets {
		s.waitSynced(t)
	}
	// Beside writes kube-apiserver ends initial events that a busy machine reads slowly.
	work := &churn{target: direct, namespaces: []string{"observed", "observed-b"}, rate: 50, names: 24,
		seed: steady.Rand(t).Uint64()}
	endWrites := work.start(t)
	// client-go lists again if a watch ends within a second of its initial events and has brought nothing since.
	work.awaitMore(t, *writes/8)
	initial := make(map[string]int) // syncs
	for _, s := range sets {
		for _, resource := range []string{"configmaps", "pods"} {
			initial[s.name+resource], _, _ = s.log.reads(resource)
		}
	}
	begun := func(mode string) float64 {
		reason := map[string]string{"serve": "-", "observe": "observed", `"off"`: "off"}[mode]
		return admin.metric(t, "watchfan_passthrough_watches_total", `reason="`+reason+`"`)
	}
	for _, to := range []string{"serve", `"off"`, "observe", "serve"} {
		served, want := 4.0, begun(to) // two resources of two clients
		if to != "serve" {
			served, want = 0, want+4
		}
		mode(to)
		steady.Until(t, "mode "+to, func() error {
			if n, begun := admin.metric(t, "watchfan_watchers"), begun(to); n != served || begun != want {
				return fmt.Errorf("%v watches are served, and %v have been passed through, want %v", n, begun, want)
			}
			return nil
		})
		work.awaitMore(t, *writes/8)
		for _, uri := range []string{"/api/v1/configmaps", "/api/v1/namespaces/observed/configmaps?limit=5",
			"/api/v1/configmaps?labelSelector=app%3Da"} {
			p.secure(t, c.token(t, "reader")).get(t, uri)
		}
		if to == "observe" { // lists take a share of a processor, so a busy machine skips some
			steady.Until(t, "list that is compared", func() error {
				p.secure(t, c.token(t, "reader")).get(t, "/api/v1/configmaps?limit=5")
				if o := observedBy(t, admin); o.Lists == 0 {
					return fmt.Errorf("%v", o.Skipped)
				}
				return nil
			})
		}
	}
	endWrites()
	work.check(t)

	report := observedBy(t, admin)
	t.Logf("%s not compared: %v", report.Verdict, report.Skipped)
	if report.Events < *writes/8 || report.Lists < 1 || len(report.Differences) > 0 {
		t.Errorf("%s", report.Verdict)
	}
	for _, s := range sets {
		steady.Until(t, "state of the cluster in the stores of "+s.name, func() error { // other tests write ConfigMaps too
			var configMaps corev1.ConfigMapList
			if err := json.Unmarshal(direct.get(t, "/api/v1/configmaps").body, &configMaps); err != nil {
				return err
			}
			return holds(s.configMaps, configMaps.Items)
		})
		for _, resource := range []string{"configmaps", "pods"} {
			if syncs, watches, all := s.log.reads(resource); syncs != initial[s.name+resource] || watches < 4 {
				t.Errorf("%s: %d syncs and %d watches of %s, want no other sync, and a watch for each change:\n%s", s.name, syncs,
					watches, resource, strings.Join(all, "\n"))
			}
		}
	}
}

// TestObserveFaults: "Beside churn and faults of the network and of kube-apiserver, nothing that a cache
// would have sent differs from what kube-apiserver has sent." -observed is how many events.
func TestObserveFaults(t *testing.T) {
	parallel(t)
	c := privateCluster(t, endWatches...)
	direct := c.direct(t)
	createNamespaces(t, direct, "observed", "observed-b")
	relay := proxytest.NewRelay(t, c.Address())
	file := filepath.Join(t.TempDir(), "config.yaml")
	const all = "apiVersion: watchfan.io/v1alpha1\nkind: WatchfanConfiguration\nclients:\n- mode: observe\n"
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	p := runWatchfan(t, binary(t, "WATCHFAN_PLAIN_BIN", "watchfan"), c.Ready.Kubeconfigs["admin"], c.through(t, relay),
		"--config", file, "--log-level=info")
	p.waitReady(t)
	admin := p.admin(t)

	work := &churn{target: direct, namespaces: []string{"observed", "observed-b"}, rate: 500, names: 40,
		seed: steady.Rand(t).Uint64(), tolerant: true}
	endWrites := work.start(t)
	work.await(t, 50)
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	ways := p.ways(t, c.token(t, "reader"))
	for i := range 60 {
		uri := []string{"/api/v1/configmaps?", "/api/v1/namespaces/observed/configmaps?",
			"/api/v1/configmaps?labelSelector=app%3Da&", "/api/v1/configmaps?labelSelector=tier&",
			"/api/v1/configmaps?fieldSelector=metadata.name%3Dcm-1&"}[i%5]
		clients.Go(func() { ways[i%3].drink(ctx, uri) })
	}
	report := observedBy(t, admin)
	for fault, step := 0, min(*observed/8, 50_000); report.Events < *observed; fault++ {
		until := report.Events + step
		steady.Until(t, fmt.Sprintf("event %d of %d", until, *observed), func() error {
			if report = observedBy(t, admin); report.Events < until {
				return fmt.Errorf("%+v", report)
			}
			return nil
		})
		switch fault % 4 {
		case 0:
			relay.Reset()
		case 1:
			c.restart(t, "--kill")
		case 2:
			relay.Delay(2 * time.Millisecond)
		case 3:
			relay.Delay(0)
		}
	}
	cancel()
	clients.Wait()
	endWrites()
	report = observedBy(t, admin)
	t.Logf("%s not compared: %v, %d writes", report.Verdict, report.Skipped, work.succeeded())
	if len(report.Differences) > 0 {
		t.Errorf("%s", report.Recent)
	}
	work.check(t)
}

// drink reads a watch until ctx ends, and continues it as clients do. It begins with a list.
func (d *target) drink(ctx context.Context, uri string) {
	version := regexp.MustCompile(`"resourceVersion":"(\d+)"`)
	for rv, last := "", []byte(nil); ctx.Err() == nil; {
		target := uri
		if rv != "" {
			target += "watch=1&allowWatchBookmarks=true&resourceVersion=" + rv
		}
		resp, err := d.open(ctx, http.MethodGet, target, nil, "")
		if err != nil || resp.StatusCode != http.StatusOK {
			if err == nil {
				resp.Body.Close()
			}
			rv = ""
			pace(ctx.Done(), 100*time.Millisecond)
			continue
		}
		in := bufio.NewReader(resp.Body)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				break
			}
			last = line
		}
		resp.Body.Close()
		if m := version.FindSubmatch(last); m != nil && !bytes.Contains(last, []byte(`"type":"ERROR"`)) {
			rv = string(m[1])
		} else {
			rv = ""
		}
	}
}
