package e2e_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// followingProgram is a program that follows the cluster and shows what it knows.
type followingProgram struct {
	name      string
	resources []string // that it watches
	// start starts a copy. knows returns what the copy knows, as sorted lines.
	start func(t *testing.T, kubeconfig string) (knows func() ([]string, error))
	marks []string // some line contains each of them once the copy knows the last changes
}

// TestFollowers: programs that people run know the same through watchfan as straight at
// kube-apiserver. Two copies cost kube-apiserver one watch for each resource, of however many namespaces.
func TestFollowers(t *testing.T) {
	t.Parallel() // each program has its turn
	for _, f := range []followingProgram{
		{"kube-state-metrics", []string{"configmaps", "pods", "services"}, startKubeStateMetrics,
			[]string{`configmap="last"`, `service="last"`, `label_step="2"`}},
		{"Prometheus' discovery", []string{"pods", "services", "nodes", "endpointslices"}, startPrometheus,
			[]string{`"__meta_kubernetes_service_name":"last"`, `"__meta_kubernetes_pod_label_step":"2"`}},
		{"CoreDNS", []string{"services", "endpointslices", "namespaces"}, startCoreDNS, []string{"last.followed.svc.cluster.local.", "192.0.2.9"}},
		{"Python's kubernetes", []string{"configmaps"}, startPythonClient, []string{"followed/last"}},
		{"a controller-runtime manager of twenty namespaces", []string{"configmaps", "pods", "services"}, startManager,
			[]string{"ConfigMap followed/last", "Service followed/last"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			parallel(t)
			c := privateCluster(t)
			p := privateWatchfan(t, c)
			p.waitReady(t)
			theirs, ours := programWays(t, c, p)
			createFollowed(t, theirs.target)
			user := &api.AuthInfo{Token: theirs.token}
			others := f.upstreamWatches(t, theirs.target)
			first := f.start(t, ours.kubeconfig(t, user))
			f.agree(t, []string{`first`}, first)
			passed := p.admin(t).metric(t, "watchfan_passthrough_watches_total") // while caches were filled
			second := f.start(t, ours.kubeconfig(t, user))
			f.agree(t, []string{`first`}, first, second)
			steady.Until(t, "one watch for each resource", func() error { // proofs are watches, too
				if n := f.upstreamWatches(t, theirs.target) - others; n != len(f.resources) {
					return fmt.Errorf("two copies make %d watches at kube-apiserver", n)
				}
				return nil
			})
			if n := p.admin(t).metric(t, "watchfan_passthrough_watches_total"); n > passed {
				t.Errorf("%v watches were passed through", n-passed)
			}
			straight := f.start(t, theirs.kubeconfig(t, user))
			f.agree(t, []string{`first`}, straight, first, second)
			changeFollowed(t, theirs.target)
			f.agree(t, f.marks, straight, first, second)
		})
	}
}

// agree waits until all copies know the same, and have all marks.
func (f followingProgram) agree(t *testing.T, marks []string, copies ...func() ([]string, error)) {
	t.Helper()
	steady.Until(t, "same knowledge everywhere of "+f.name, func() error {
		var want []string
		for i, knows := range copies {
			lines, err := knows()
			if err != nil {
				return err
			}
			for _, mark := range marks {
				if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, mark) }) {
					return fmt.Errorf("copy %d does not know %s: %d lines", i, mark, len(lines))
				}
			}
			if i == 0 {
				want = lines
			}
			for k := range max(len(lines), len(want)) {
				if k >= len(lines) || k >= len(want) || lines[k] != want[k] {
					return fmt.Errorf("copy %d of %d lines differs from the first of %d at line %d", i, len(lines), len(want), k)
				}
			}
		}
		return nil
	})
}

func (f followingProgram) upstreamWatches(t *testing.T, d *target) (n int) {
	t.Helper()
	for _, resource := range f.resources {
		n += upstreamWatches(t, d, resource)
	}
	return n
}

// upstreamWatches counts kube-apiserver's watches of a resource, including those of its own informers.
func upstreamWatches(t testing.TB, d *target, resource string, labels ...string) int {
	t.Helper()
	return int(d.metric(t, "apiserver_longrunning_requests", append(labels, `verb="WATCH"`, fmt.Sprintf("resource=%q", resource))...))
}

const followedURI = "/api/v1/namespaces/followed/"

// createFollowed creates what followers follow.
func createFollowed(t *testing.T, d *target) {
	t.Helper()
	createNamespaces(t, d, "followed")
	d.create(t, "/api/v1/nodes", `{"metadata":{"name":"first-node"},"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`)
	for i := range 20 {
		name := fmt.Sprintf("first-%d", i)
		d.create(t, followedURI+"configmaps", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		d.create(t, followedURI+"services", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"ports":[{"port":80}]}}`, name))
		d.create(t, followedURI+"pods", fmt.Sprintf(
			`{"metadata":{"name":%q,"labels":{"step":"1"}},"spec":{"nodeName":"first-node","containers":[{"name":"c","image":"i","ports":[{"containerPort":80}]}]}}`, name))
		d.patch(t, followedURI+"pods/"+name+"/status", fmt.Sprintf(`{"status":{"podIP":"192.0.2.%d","podIPs":[{"ip":"192.0.2.%d"}]}}`, 100+i, 100+i))
	}
	d.create(t, followedURI+"services", `{"metadata":{"name":"first-headless"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`)
	d.create(t, followedSlices, `{"metadata":{"name":"slice","labels":{"kubernetes.io/service-name":"first-headless"}},"addressType":"IPv4",`+
		`"ports":[{"port":80}],"endpoints":[{"addresses":["192.0.2.8"]}]}`)
}

const followedSlices = "/apis/discovery.k8s.io/v1/namespaces/followed/endpointslices"

// changeFollowed creates, changes and deletes some of it.
func changeFollowed(t *testing.T, d *target) {
	t.Helper()
	for i := range 10 {
		for _, resource := range []string{"configmaps", "services", "pods"} {
			d.remove(t, fmt.Sprintf("%s%s/first-%d", followedURI, resource, i))
		}
		d.patch(t, fmt.Sprintf("%spods/first-%d", followedURI, 10+i), `{"metadata":{"labels":{"step":"2"}}}`)
	}
	d.patch(t, followedSlices+"/slice", `{"endpoints":[{"addresses":["192.0.2.9"]}]}`)
	d.create(t, followedURI+"services", `{"metadata":{"name":"last"},"spec":{"ports":[{"port":80}]}}`)
	d.create(t, followedURI+"configmaps", `{"metadata":{"name":"last"}}`)
}

func startKubeStateMetrics(t *testing.T, kubeconfig string) func() ([]string, error) {
	return runKubeStateMetrics(t, nil, "--kubeconfig", kubeconfig, "--resources", "configmaps,pods,services",
		"--metric-labels-allowlist", "pods=[step]")
}

// runKubeStateMetrics starts kube-state-metrics with an environment and arguments.
func runKubeStateMetrics(t *testing.T, environment []string, args ...string) func() ([]string, error) {
	t.Helper()
	cmd := exec.Command(binary(t, "KUBE_STATE_METRICS_BIN", "kube-state-metrics"), append(args, "--host", "127.0.0.1", "--port", "0",
		"--telemetry-host", "127.0.0.2", "--telemetry-port", "0")...)
	cmd.Env = environment
	process := runFollower(t, "kube-state-metrics", cmd)
	return func() (lines []string, err error) {
		port, err := listeningAt(process.Cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		page, err := newTarget("kube-state-metrics", "http://127.0.0.1:"+port, nil).try(http.MethodGet, "/metrics", nil, "")
		for line := range strings.Lines(string(page.body)) {
			if strings.HasPrefix(line, "kube_") {
				lines = append(lines, line)
			}
		}
		slices.Sort(lines)
		return lines, err
	}
}

// startPrometheus starts Prometheus' discovery, see the program discovery.
func startPrometheus(t *testing.T, kubeconfig string) func() ([]string, error) {
	state := filepath.Join(t.TempDir(), "state")
	runFollower(t, "discovery", exec.Command(binary(t, "DISCOVERY_BIN", "discovery"), kubeconfig, state))
	return linesOf(state)
}

func startCoreDNS(t *testing.T, kubeconfig string) func() ([]string, error) {
	port := reservedPort(t)
	file := filepath.Join(t.TempDir(), "Corefile")
	config := fmt.Sprintf("cluster.local:%s {\n  bind 127.0.0.1\n  kubernetes {\n    kubeconfig %s context\n    ttl 0\n  }\n}\n", port, kubeconfig)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	runFollower(t, "coredns", exec.Command(binary(t, "COREDNS_BIN", "coredns"), "-conf", file))
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+port)
	}}
	return func() (lines []string, err error) {
		names := []string{"first-headless", "last"}
		for i := range 20 {
			names = append(names, fmt.Sprintf("first-%d", i))
		}
		for _, name := range names {
			name += ".followed.svc.cluster.local."
			addresses, err := resolver.LookupHost(t.Context(), name)
			if missing := (*net.DNSError)(nil); errors.As(err, &missing) && missing.IsNotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			slices.Sort(addresses)
			lines = append(lines, name+" "+strings.Join(addresses, " "))
		}
		return lines, nil
	}
}

// startManager starts a manager, see the program controllers.
func startManager(t *testing.T, kubeconfig string) func() ([]string, error) {
	namespaces, state := "followed", filepath.Join(t.TempDir(), "state")
	for i := range 19 {
		namespaces += fmt.Sprint(",other-", i)
	}
	runFollower(t, "controllers", exec.Command(binary(t, "CONTROLLERS_BIN", "controllers"), "--kubeconfig", kubeconfig, namespaces, state))
	return linesOf(state)
}

//go:embed testdata/follow.py
var followPython []byte

func startPythonClient(t *testing.T, kubeconfig string) func() ([]string, error) {
	dir := t.TempDir()
	script, state := filepath.Join(dir, "follow.py"), filepath.Join(dir, "state")
	if err := os.WriteFile(script, followPython, 0o600); err != nil {
		t.Fatal(err)
	}
	runFollower(t, "python3", exec.Command("/usr/bin/python3", script, kubeconfig, state))
	return linesOf(state)
}

// linesOf returns the lines of a file that a copy keeps.
func linesOf(file string) func() ([]string, error) {
	return func() (lines []string, err error) {
		body, err := os.ReadFile(file)
		for line := range strings.Lines(string(body)) {
			lines = append(lines, strings.TrimSpace(line))
		}
		return lines, err
	}
}

// runFollower starts a program that ends with the test. Its environment is the test's, with cmd.Env
// added.
func runFollower(t *testing.T, name string, cmd *exec.Cmd) *proxytest.Process {
	t.Helper()
	cmd.Env = slices.Concat(os.Environ(), proxytest.Detectors, cmd.Env)
	process, err := proxytest.StartProcess(cmd, filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Cmd.Process.Kill() // it has nothing to tidy up
		<-process.Exited
		if t.Failed() {
			log, _ := os.ReadFile(process.Log)
			t.Logf("the log of %s:\n%s", name, proxytest.Complaints(log))
		}
	})
	return process
}
