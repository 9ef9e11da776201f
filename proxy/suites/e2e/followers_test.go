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
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// fleet is a program that people run, in several copies: one for each shard, say, or one on each node.
type fleet struct {
	name      string
	copies    int
	resources []string // that each copy watches
	// start starts a copy. knows returns what the copy knows, as sorted lines.
	start func(t *testing.T, kubeconfig string, number int) (knows func() ([]string, error))
	// Some line of the fleet has each of these once it knows the last changes. N stands for the numbers of changes, and
	// COPY for that of the copy that notices it on its node. A line begins with the number of its copy.
	marks []string
	// view is the one of deploy/VIEWS.md that the fleet is in, and hidden finds what the view does not show of a line.
	view   string
	hidden *regexp.Regexp
}

var fleets = []fleet{
	{name: "kube-state-metrics", copies: 2, resources: []string{"configmaps", "pods", "services"}, start: startKubeStateMetrics,
		marks: []string{`configmap="last-N"`, `service="last-N"`, `label_step="2"`}},
	{name: "kube-state-metrics in its view", copies: 2, resources: []string{"configmaps", "pods", "services"}, start: startKubeStateMetrics,
		marks: []string{`configmap="last-N"`, `service="last-N"`, `label_step="2"`}, view: "kube-state-metrics"},
	{name: "Alloy's discovery in the view of log agents", copies: 2, resources: []string{"pods", "services", "nodes", "endpointslices"}, start: startPrometheus,
		marks: []string{`"__meta_kubernetes_service_name":"last-N"`, `"__meta_kubernetes_pod_label_step":"2"`}, view: "log-agents",
		hidden: regexp.MustCompile(`"(__address__|__meta_kubernetes_pod_(container_port_\w+|ready))":"[^"]*",?`)},
	{name: "controller-runtime in KEDA's view", copies: 2, resources: []string{"configmaps", "pods", "services"}, start: startManager,
		marks: []string{"ConfigMap followed/last-N", "Service followed/last-N"}, view: "keda"},
	{name: "Prometheus' discovery", copies: 2, resources: []string{"pods", "services", "nodes", "endpointslices"}, start: startPrometheus,
		marks: []string{`"__meta_kubernetes_service_name":"last-N"`, `"__meta_kubernetes_pod_label_step":"2"`}},
	{name: "CoreDNS", copies: 2, resources: []string{"services", "endpointslices", "namespaces"}, start: startCoreDNS,
		marks: []string{"last-N.followed.svc.cluster.local.", "192.0.2.9"}},
	{name: "Python's kubernetes", copies: 2, resources: []string{"configmaps"}, start: startPythonClient, marks: []string{"followed/last-N"}},
	{name: "a controller-runtime manager of twenty namespaces", copies: 2, resources: []string{"configmaps", "pods", "services"}, start: startManager,
		marks: []string{"ConfigMap followed/last-N", "Service followed/last-N"}},
	{name: "kube-state-metrics in shards", copies: fleetNodes, resources: []string{"configmaps", "pods", "services"}, start: startShard,
		marks: []string{`configmap="last-N"`, `service="last-N"`, `pod="last-N"`}},
	{name: "kube-state-metrics on each node", copies: fleetNodes, resources: []string{"pods"}, start: startOnNode, marks: []string{`pod="last-N"`}},
	{name: "kube-proxy", copies: fleetNodes, resources: []string{"services", "endpointslices", "servicecidrs", "nodes"}, start: startKubeProxy,
		marks: []string{"COPY: service followed/last-N ", "COPY: slice followed/last 192.0.2.9", "COPY: topology map[topology.kubernetes.io/zone:last]"}},
}

// TestFollowers: programs that people run, as deploy/RECIPES.md sets them up, know the same through watchfan as straight
// at kube-apiserver. All copies together cost kube-apiserver one watch for each resource, of however many namespaces.
func TestFollowers(t *testing.T) {
	t.Parallel() // each program has its turn
	for _, f := range fleets {
		t.Run(f.name, func(t *testing.T) {
			parallel(t)
			c := privateCluster(t)
			p := privateWatchfan(t, c, f.config(t)...)
			p.waitReady(t)
			theirs, ours := programWays(t, c, p)
			ours.target = ours.in(f.view)
			createFollowed(t, theirs.target)
			admin, others := p.admin(t), f.upstreamWatches(t, theirs.target)
			passed := func() float64 { return admin.metric(t, "watchfan_passthrough_watches_total") }
			var before float64 // while caches were filled
			through := f.startAll(t, ours, func() { before = passed() })
			steady.Until(t, "one watch for each resource", func() error { // proofs are watches, too
				if n := f.upstreamWatches(t, theirs.target) - others; n != len(f.resources) {
					return fmt.Errorf("%d copies make %d watches at kube-apiserver", f.copies, n)
				}
				return nil
			})
			if n := passed() - before; n > 0 {
				t.Errorf("%v watches were passed through", n)
			}
			straight := f.startAll(t, theirs, func() {})
			agree(t, nil, straight, through)
			changeFollowed(t, theirs.target)
			agree(t, f.allMarks(), straight, through)
		})
	}
}

// config returns the arguments that give watchfan the view of deploy/VIEWS.md that the fleet is in.
func (f fleet) config(t *testing.T) (arguments []string) {
	t.Helper()
	if f.view == "" {
		return nil
	}
	page, err := os.ReadFile("../../../deploy/VIEWS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, view, ok := strings.Cut(string(page), "```yaml\nviews:\n  - name: "+f.view+"\n")
	if !ok {
		t.Fatalf("deploy/VIEWS.md has no view %s of its own", f.view)
	}
	view, _, _ = strings.Cut(view, "```")
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: watchfan.io/v1alpha1\nkind: WatchfanConfiguration\nviews:\n  - name: " + f.view + "\n" + view
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config", file}
}

// startAll starts all copies, each when the one before it knows something. The first calls filled then. knows returns
// what they know, each line with the number of its copy.
func (f fleet) startAll(t *testing.T, w programWay, filled func()) (knows func() ([]string, error)) {
	t.Helper()
	kubeconfig := w.kubeconfig(t, &api.AuthInfo{Token: w.token})
	var copies []func() ([]string, error)
	for i := range f.copies {
		copies = append(copies, f.start(t, kubeconfig, i))
		agree(t, []string{"first"}, copies[i])
		if i == 0 {
			filled()
		}
	}
	return func() (all []string, err error) {
		for i, knows := range copies {
			lines, err := knows()
			if err != nil {
				return nil, err
			}
			for _, line := range lines {
				if f.hidden != nil {
					line = f.hidden.ReplaceAllString(line, "")
				}
				all = append(all, fmt.Sprintf("%d: %s", i, line))
			}
		}
		return all, nil
	}
}

func (f fleet) allMarks() (all []string) {
	for n := range followedChanges {
		number := strings.NewReplacer("N", fmt.Sprint(n), "COPY", fmt.Sprint(n%fleetNodes))
		for _, mark := range f.marks {
			all = append(all, number.Replace(mark))
		}
	}
	return all
}

// agree waits until all know the same, and have all marks.
func agree(t *testing.T, marks []string, all ...func() ([]string, error)) {
	t.Helper()
	steady.Until(t, "same knowledge everywhere", func() error {
		var want []string
		for i, knows := range all {
			lines, err := knows()
			if err != nil {
				return err
			}
			for _, mark := range marks {
				if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, mark) }) {
					return fmt.Errorf("%d does not know %s: %d lines", i, mark, len(lines))
				}
			}
			if i == 0 {
				want = lines
			} else if !slices.Equal(lines, want) {
				return fmt.Errorf("%d differs from the first: %s", i, cmp.Diff(want, lines))
			}
		}
		return nil
	})
}

func (f fleet) upstreamWatches(t *testing.T, d *target) (n int) {
	t.Helper()
	for _, resource := range f.resources {
		n += upstreamWatches(t, d, resource)
	}
	return n
}

// upstreamWatches counts kube-apiserver's watches of a resource, including those of its own informers.
func upstreamWatches(t testing.TB, d *target, resource string) int {
	t.Helper()
	return int(d.metric(t, "apiserver_longrunning_requests", `verb="WATCH"`, fmt.Sprintf("resource=%q", resource)))
}

const followedURI = "/api/v1/namespaces/followed/"

const (
	fleetNodes      = 3
	followedChanges = 12 // so that each shard and each node gets some
)

func nodeOf(number int) string { return fmt.Sprintf("node-%d", number) }

// createFollowed creates what followers follow.
func createFollowed(t *testing.T, d *target) {
	t.Helper()
	createNamespaces(t, d, "followed")
	for i := range fleetNodes {
		// Without a zone: kube-proxy may miss the labels that its node has when it starts. It handles the
		// node before it has registered what is to hear of its topology (k8s.io/kubernetes, ProxyServer.Run).
		d.create(t, "/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":%q},`+
			`"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.%d"}]}}`, nodeOf(i), 10+i))
	}
	for i := range 20 {
		name := fmt.Sprintf("first-%d", i)
		d.create(t, followedURI+"configmaps", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		d.create(t, followedURI+"services", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"ports":[{"port":80}]}}`, name))
		createFollowedPod(t, d, name, nodeOf(i%fleetNodes))
		d.patch(t, followedURI+"pods/"+name+"/status", fmt.Sprintf(`{"status":{"podIP":"192.0.2.%d","podIPs":[{"ip":"192.0.2.%d"}]}}`, 100+i, 100+i))
	}
	d.create(t, followedURI+"services", `{"metadata":{"name":"first-headless"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`)
	createFollowedSlice(t, d, "slice", "first-headless", "192.0.2.8")
}

func createFollowedPod(t *testing.T, d *target, name, node string) {
	t.Helper()
	d.create(t, followedURI+"pods", fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"step":"1"}},"spec":{"nodeName":%q,`+
		`"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}]}]}}`, name, node))
}

const followedSlices = "/apis/discovery.k8s.io/v1/namespaces/followed/endpointslices"

func createFollowedSlice(t *testing.T, d *target, name, service, address string) {
	t.Helper()
	d.create(t, followedSlices, fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"kubernetes.io/service-name":%q}},"addressType":"IPv4",`+
		`"ports":[{"port":80}],"endpoints":[{"addresses":[%q]}]}`, name, service, address))
}

// changeFollowed creates, changes and deletes objects of each resource, on each node.
func changeFollowed(t *testing.T, d *target) {
	t.Helper()
	for i := range fleetNodes {
		d.patch(t, "/api/v1/nodes/"+nodeOf(i), `{"metadata":{"labels":{"topology.kubernetes.io/zone":"last"}}}`)
	}
	d.patch(t, followedSlices+"/slice", `{"endpoints":[{"addresses":["192.0.2.9"]}]}`)
	createFollowedSlice(t, d, "last", "first-19", "192.0.2.9")
	for n := range followedChanges {
		for _, resource := range []string{"configmaps", "services", "pods"} {
			d.remove(t, fmt.Sprintf("%s%s/first-%d", followedURI, resource, n))
		}
		d.create(t, followedURI+"configmaps", fmt.Sprintf(`{"metadata":{"name":"last-%d"}}`, n))
		createFollowedPod(t, d, fmt.Sprintf("last-%d", n), nodeOf(n%fleetNodes))
		d.create(t, followedURI+"services", fmt.Sprintf(`{"metadata":{"name":"last-%d"},"spec":{"ports":[{"port":80}]}}`, n))
	}
	for n := followedChanges; n < 20; n++ {
		d.patch(t, fmt.Sprintf("%spods/first-%d", followedURI, n), `{"metadata":{"labels":{"step":"2"}}}`)
	}
}

func startKubeStateMetrics(t *testing.T, kubeconfig string, _ int) func() ([]string, error) {
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

// startShard starts one of kube-state-metrics' shards. With client-go 0.35, all of its shards but one
// wait for ever for the end of a streaming list, at any server, because their filter drops bookmarks
// (https://github.com/kubernetes/kube-state-metrics/issues/2973). So it lists.
func startShard(t *testing.T, kubeconfig string, number int) func() ([]string, error) {
	return runKubeStateMetrics(t, []string{"KUBE_FEATURE_WatchListClient=false"}, "--kubeconfig", kubeconfig,
		"--resources", "configmaps,pods,services", "--shard", fmt.Sprint(number), "--total-shards", fmt.Sprint(fleetNodes))
}

// startOnNode starts kube-state-metrics for the pods of a node, as a DaemonSet runs it.
func startOnNode(t *testing.T, kubeconfig string, number int) func() ([]string, error) {
	return runKubeStateMetrics(t, nil, "--kubeconfig", kubeconfig, "--resources", "pods", "--node", nodeOf(number))
}

// startKubeProxy starts kube-proxy's own server, see the program kubeproxy.
func startKubeProxy(t *testing.T, kubeconfig string, number int) func() ([]string, error) {
	state := filepath.Join(t.TempDir(), "state")
	runFollower(t, "kubeproxy", exec.Command(binary(t, "KUBEPROXY_BIN", "kubeproxy"), kubeconfig, nodeOf(number), state))
	return linesOf(state)
}

// startPrometheus starts Prometheus' discovery, see the program discovery.
func startPrometheus(t *testing.T, kubeconfig string, _ int) func() ([]string, error) {
	state := filepath.Join(t.TempDir(), "state")
	runFollower(t, "discovery", exec.Command(binary(t, "DISCOVERY_BIN", "discovery"), kubeconfig, state))
	return linesOf(state)
}

func startCoreDNS(t *testing.T, kubeconfig string, _ int) func() ([]string, error) {
	port := proxytest.ReservedPort(t)
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
		names := []string{"first-headless"}
		for i := range 20 {
			names = append(names, fmt.Sprintf("first-%d", i), fmt.Sprintf("last-%d", i))
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
func startManager(t *testing.T, kubeconfig string, _ int) func() ([]string, error) {
	namespaces, state := "followed", filepath.Join(t.TempDir(), "state")
	for i := range 19 {
		namespaces += fmt.Sprint(",other-", i)
	}
	runFollower(t, "controllers", exec.Command(binary(t, "CONTROLLERS_BIN", "controllers"), "--kubeconfig", kubeconfig, namespaces, state))
	return linesOf(state)
}

// TestReadYourWrites: a controller finds each of its own writes in its informers' caches, deletions too, and no
// read or reconcile waits for ever: watches of a cache bring what was written through the same watchfan. The one
// reads with controller-runtime's EnableReadYourWritesConsistency, the other has kube-controller-manager's store of
// writes (KEP-5647).
func TestReadYourWrites(t *testing.T) {
	s := newStage(t, "read-writes")
	theirs, ours := programWays(t, sharedCluster(t), sharedWatchfan(t))
	for _, w := range []programWay{theirs, ours} {
		kubeconfig := w.kubeconfig(t, &api.AuthInfo{Token: w.token})
		for _, command := range [][]string{
			{binary(t, "CONTROLLERS_BIN", "controllers"), "--kubeconfig", kubeconfig, "--writes", "20", s.ns},
			{binary(t, "CONSISTENCY_BIN", "consistency"), kubeconfig, s.ns, "60"},
		} {
			if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v\n%s", w.base, command[0], err, out)
			}
		}
	}
}

//go:embed testdata/follow.py
var followPython []byte

func startPythonClient(t *testing.T, kubeconfig string, _ int) func() ([]string, error) {
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
