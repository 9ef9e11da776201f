package e2e_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/watchfan/watchfan/proxy/assess"
)

// TestAssess puts a known load on kube-apiserver, asks watchfan assess about it, moves the load to
// watchfan, and measures. It logs each estimate with its error. It fails if one is absurd: a loaded
// machine is no error.
func TestAssess(t *testing.T) {
	c := privateCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "load")
	const (
		path    = "/api/v1/namespaces/load/configmaps"
		watches = 400
		rate    = 50 // writes per second
		seconds = 5
	)
	quiet := assessed(t, c, "configmaps", 2)
	load := &churn{target: direct, namespaces: []string{"load"}, rate: rate, names: 16, seed: 1}
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
	began, first, read := time.Now(), load.writes.Load(), straight.bytes.Load()
	loaded := assessed(t, c, "configmaps", seconds)
	took := time.Since(began).Seconds()
	wrote, bytes := float64(load.writes.Load()-first)/took, float64(straight.bytes.Load()-read)/took
	straight.leave()

	p := plainWatchfan(t, c)
	p.waitReady(t)
	moved := gather(t, p.secure(t, c.token(t, "admin")), watches, uri)
	eventually(t, time.Minute, "end of the watches at kube-apiserver", func() error {
		if n := upstreamWatchesOf(t, direct, "configmaps"); n > int(quiet.Watches)+1 {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
	admin := p.admin(t)
	began, first = time.Now(), load.writes.Load()
	cpu := admin.metric(t, "process_cpu_seconds_total")
	after := assessed(t, c, "configmaps", seconds)
	took = time.Since(began).Seconds()
	tierCPU := (admin.metric(t, "process_cpu_seconds_total") - cpu) / took
	wroteAfter, memory := float64(load.writes.Load()-first)/took, float64(p.residentMemory(t))
	moved.leave()

	was, is, mib := loaded.whole.APIServer, after.whole.APIServer, float64(1<<20)
	compared := estimates{
		{"watches at kube-apiserver", loaded.Watches - quiet.Watches, watches, 1.1},
		{"events/s", loaded.Events, wrote, 1.5},
		{"deliveries/s", loaded.Deliveries, wrote * watches, 1.5},
		{"KiB/s", loaded.Bytes / 1024, bytes / 1024, 2},
		{"with watchfan: watches at kube-apiserver, at most", loaded.WatchesLeft, after.Watches - quiet.Watches, 3},
		{"deliveries/s of kube-apiserver, at most", loaded.DeliveriesLeft, after.Deliveries, 4},
		{"cores of kube-apiserver that are saved", loaded.SavedCPU.Mid, was.CPU - is.CPU, 10},
		{"cores of watchfan", loaded.whole.Tier.CPU.Mid, tierCPU, 10},
		{"MiB of watchfan", loaded.whole.Tier.Memory.Mid / mib, memory / mib, 10},
	}
	t.Logf("%d watches, %.1f and then %.1f writes/s; kube-apiserver takes %.3f cores, and then %.3f:\n%s",
		watches, wrote, wroteAfter, was.CPU, is.CPU, compared)
	t.Logf("verdicts: quiet %s, loaded %s, with watchfan %s", quiet.whole.Verdict, loaded.whole.Verdict, after.whole.Verdict)
	if wrote < rate/2 || wroteAfter < rate/2 {
		t.Logf("this machine is too slow for the load")
		return
	}
	compared.check(t)
	for _, calm := range []assessment{quiet, after} {
		if calm.whole.Verdict != assess.NotNeeded {
			t.Errorf("without much load: %s, %s", calm.whole.Verdict, calm.whole.Reasons)
		}
	}
	if loaded.Deliveries > 15_000 && loaded.whole.Verdict == assess.NotNeeded {
		t.Errorf("%.0f deliveries/s: %s, %s", loaded.Deliveries, loaded.whole.Verdict, loaded.whole.Reasons)
	}
}

// estimates are what assess says, beside what is measured then. factor is how far apart the two may be.
type estimates []struct {
	what                   string
	said, measured, factor float64
}

func (e estimates) String() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tassess\tmeasured\terror")
	for _, x := range e {
		fmt.Fprintf(table, "%s\t%.4g\t%.4g\t%+.0f %%\n", x.what, x.said, x.measured, 100*(x.said/x.measured-1))
	}
	_ = table.Flush()
	return b.String()
}

func (e estimates) check(t *testing.T) {
	t.Helper()
	for _, x := range e {
		if ratio := x.said / x.measured; !(ratio < x.factor && ratio > 1/x.factor) {
			t.Errorf("%s: assess says %.4g, and %.4g is measured", x.what, x.said, x.measured)
		}
	}
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
