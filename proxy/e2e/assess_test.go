package e2e_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/assess"
)

// TestAssess: watchfan assess counts the watches, events and deliveries of a load, and what it says is
// left is what kube-apiserver then has when the load has moved to watchfan.
func TestAssess(t *testing.T) {
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "load")
	const (
		path    = "/api/v1/namespaces/load/configmaps"
		watches = 100
		rate    = 20 // events per second
		spread  = 0.15
	)
	quiet := assessed(t, c, "configmaps", 2)
	if quiet.whole.Verdict != assess.NotNeeded {
		t.Errorf("a quiet cluster: %s, %s", quiet.whole.Verdict, quiet.whole.Reasons)
	}

	load := &churn{target: direct, namespaces: []string{"load"}, rate: rate, names: 16}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- load.run(stop) }()
	defer func() {
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	uri := func(int) string { return path + "?watch=1&resourceVersion=0" }
	straight := gather(t, direct, watches, uri)
	began, first := time.Now(), load.writes.Load()
	loaded := assessed(t, c, "configmaps", 5)
	wrote := float64(load.writes.Load()-first) / time.Since(began).Seconds()
	straight.leave()
	for what, pair := range map[string][2]float64{
		"watches":    {loaded.Watches, quiet.Watches + watches},
		"events":     {loaded.Events, wrote},
		"deliveries": {loaded.Deliveries, wrote * watches},
	} {
		if pair[1] == 0 || math.Abs(pair[0]/pair[1]-1) > spread {
			t.Errorf("%s: assess says %.1f, the load has %.1f", what, pair[0], pair[1])
		}
	}

	p := privateWatchfan(t, c)
	p.waitReady(t)
	moved := gather(t, p.secure(t, c.token(t, "admin")), watches, uri)
	eventually(t, time.Minute, "end of the watches at kube-apiserver", func() error {
		if n := upstreamWatchesOf(t, direct, "configmaps"); n > int(quiet.Watches)+1 {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
	after := assessed(t, c, "configmaps", 5)
	moved.leave()
	if got, want := after.Watches-quiet.Watches, loaded.WatchesLeft; got < 1 || got > want {
		t.Errorf("%.0f watches are left for watchfan, assess said at most %.0f", got, want)
	}
	if got, want := after.Deliveries, loaded.DeliveriesLeft*(1+spread); got == 0 || got > want+quiet.Watches*rate {
		t.Errorf("%.1f deliveries/s are left, assess said at most %.1f", got, want)
	}
	saved, said := loaded.whole.APIServer.CPU-after.whole.APIServer.CPU, loaded.SavedCPU
	t.Logf("kube-apiserver's CPU fell from %.3f to %.3f cores; assess said %.3f (%.3f–%.3f) less, and is %.3f off",
		loaded.whole.APIServer.CPU, after.whole.APIServer.CPU, said.Mid, said.Low, said.High, said.Mid-saved)
	t.Logf("%.0f watches and %.1f deliveries/s are left, assess said %.0f and %.1f",
		after.Watches-quiet.Watches, after.Deliveries, loaded.WatchesLeft, loaded.DeliveriesLeft)
}

// TestAssessRights: without the right to get /metrics, assess says how to give it.
func TestAssessRights(t *testing.T) {
	c := sharedCluster(t)
	cmd := exec.Command(binary(t, "WATCHFAN_BIN", "watchfan"), "assess", "--kubeconfig", c.Ready.Kubeconfigs["user"])
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "403 Forbidden to get /metrics: the kubeconfig's user needs this right") ||
		!strings.Contains(string(out), "kubectl create clusterrole metrics-reader --verb=get --non-resource-url=/metrics\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// assessment is what assess says of one resource, and of all.
type assessment struct {
	assess.Resource
	whole assess.Assessment
}

// assessed runs watchfan assess before one replica.
func assessed(t *testing.T, c *cluster, resource string, seconds int) assessment {
	t.Helper()
	cmd := exec.Command(binary(t, "WATCHFAN_BIN", "watchfan"), "assess", "--kubeconfig", c.Ready.Kubeconfigs["admin"],
		fmt.Sprintf("--for=%ds", seconds), "--replicas=1", "-o=json")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("assess: %v", err)
	}
	var a assessment
	if err := json.Unmarshal(out, &a.whole); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(a.whole.Missing) > 0 {
		t.Errorf("missing: %s", a.whole.Missing)
	}
	for _, r := range a.whole.Resources {
		if r.Group == "" && r.Resource == resource {
			a.Resource = r
		}
	}
	return a
}

// upstreamWatchesOf counts kube-apiserver's watches of a resource in any scope.
func upstreamWatchesOf(t testing.TB, d *target, resource string) int {
	t.Helper()
	return int(d.metric(t, "apiserver_longrunning_requests", `verb="WATCH"`, fmt.Sprintf("resource=%q", resource)))
}
