package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// fleet is a program in several copies: one for each shard, or one on each node.
type fleet struct {
	name      string
	resources []string // that each copy watches
	// start starts a copy. knows returns what the copy knows, as sorted lines.
	start func(t *testing.T, kubeconfig string, number int) (knows func() ([]string, error))
	// marks returns what stands in some line of the fleet once it knows the changes numbered n. A line
	// begins with the number of its copy.
	marks func(n int) []string
}

const (
	fleetCopies  = 3
	fleetChanges = 12 // so that each shard and each node gets some
)

// TestRecipes: programs of deploy/RECIPES.md, in several copies, know the same through watchfan as straight at
// kube-apiserver. Straight, each copy costs kube-apiserver a watch of each resource. Through watchfan all copies
// together cost it one, besides those that prove freshness.
func TestRecipes(t *testing.T) {
	t.Parallel() // each program has its turn
	for _, f := range []fleet{
		{"kube-state-metrics in shards", []string{"configmaps", "pods", "services"}, startShard, func(n int) []string {
			return []string{fmt.Sprintf(`configmap="last-%d"`, n), fmt.Sprintf(`service="last-%d"`, n), fmt.Sprintf(`pod="last-%d"`, n)}
		}},
		{"kube-state-metrics on each node", []string{"pods"}, startOnNode, func(n int) []string {
			return []string{fmt.Sprintf(`pod="last-%d"`, n)}
		}},
		{"kube-proxy", []string{"services", "endpointslices", "servicecidrs", "nodes"}, startKubeProxy, func(n int) []string {
			return []string{fmt.Sprintf("%d: service followed/last-%d ", n%fleetCopies, n), fmt.Sprintf("%d: slice followed/last 192.0.2.9", n%fleetCopies),
				fmt.Sprintf("%d: topology map[topology.kubernetes.io/zone:last]", n%fleetCopies)}
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			parallel(t)
			c := privateCluster(t)
			p := privateWatchfan(t, c)
			p.waitReady(t)
			theirs, ours := programWays(t, c, p)
			createFollowed(t, theirs.target)
			createFleetNodes(t, theirs.target)
			one := followingProgram{name: f.name, resources: f.resources}
			agree, idle := one.agree, one.upstreamWatches(t, theirs.target)
			awaitWatches := func(each int) {
				t.Helper()
				steady.Until(t, "watches at kube-apiserver", func() error {
					if n, want := one.upstreamWatches(t, theirs.target), idle+each*len(f.resources); n != want {
						return fmt.Errorf("%d, want %d", n, want)
					}
					return nil
				})
			}
			straight := f.startAll(t, theirs)
			awaitWatches(fleetCopies)
			agree(t, []string{"first"}, straight)
			through := f.startAll(t, ours)
			agree(t, []string{"first"}, straight, through)
			awaitWatches(fleetCopies + 1)
			if n := p.admin(t).metric(t, "watchfan_passthrough_watches_total"); n > 0 {
				t.Errorf("%v watches were passed through", n)
			}

			changeFleet(t, theirs.target)
			var marks []string
			for n := range fleetChanges {
				marks = append(marks, f.marks(n)...)
			}
			agree(t, marks, straight, through)
		})
	}
}

// startAll starts all copies. knows returns what they know, each line with the number of its copy.
func (f fleet) startAll(t *testing.T, w programWay) (knows func() ([]string, error)) {
	t.Helper()
	kubeconfig := w.kubeconfig(t, &api.AuthInfo{Token: w.token})
	var copies []func() ([]string, error)
	for i := range fleetCopies {
		copies = append(copies, f.start(t, kubeconfig, i))
	}
	return func() (all []string, err error) {
		for i, knows := range copies {
			lines, err := knows()
			if err != nil {
				return nil, err
			}
			if len(lines) == 0 {
				return nil, fmt.Errorf("copy %d knows nothing", i)
			}
			for _, line := range lines {
				all = append(all, fmt.Sprintf("%d: %s", i, line))
			}
		}
		return all, nil
	}
}

func nodeOf(number int) string { return fmt.Sprintf("node-%d", number) }

// createFleetNodes creates the nodes of copies, with a pod each.
func createFleetNodes(t *testing.T, d *target) {
	t.Helper()
	for i := range fleetCopies {
		// Without a zone: kube-proxy may miss the labels that its node has when it starts. It handles the
		// node before it has registered what is to hear of its topology (k8s.io/kubernetes, ProxyServer.Run).
		d.create(t, "/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":%q},`+
			`"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.%d"}]}}`, nodeOf(i), 10+i))
		createFleetPod(t, d, fmt.Sprintf("first-on-node-%d", i), nodeOf(i))
	}
}

func createFleetPod(t *testing.T, d *target, name, node string) {
	t.Helper()
	d.create(t, followedURI+"pods", fmt.Sprintf(
		`{"metadata":{"name":%q,"labels":{"step":"1"}},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"i"}]}}`, name, node))
}

// changeFleet creates, changes and deletes objects of each resource, on each node.
func changeFleet(t *testing.T, d *target) {
	t.Helper()
	for i := range fleetCopies {
		d.remove(t, fmt.Sprintf("%spods/first-on-node-%d", followedURI, i))
		d.patch(t, "/api/v1/nodes/"+nodeOf(i), `{"metadata":{"labels":{"topology.kubernetes.io/zone":"last"}}}`)
	}
	d.create(t, followedSlices, `{"metadata":{"name":"last","labels":{"kubernetes.io/service-name":"first-1"}},"addressType":"IPv4",`+
		`"ports":[{"port":80}],"endpoints":[{"addresses":["192.0.2.9"]}]}`)
	for n := range fleetChanges {
		d.remove(t, fmt.Sprintf("%sservices/first-%d", followedURI, n))
		d.remove(t, fmt.Sprintf("%sconfigmaps/first-%d", followedURI, n))
		d.create(t, followedURI+"configmaps", fmt.Sprintf(`{"metadata":{"name":"last-%d"}}`, n))
		createFleetPod(t, d, fmt.Sprintf("last-%d", n), nodeOf(n%fleetCopies))
		d.create(t, followedURI+"services", fmt.Sprintf(`{"metadata":{"name":"last-%d"},"spec":{"ports":[{"port":80}]}}`, n))
	}
}

// startShard starts one of kube-state-metrics' shards. With client-go 0.35, all of its shards but one
// wait for ever for the end of a streaming list, at any server, because their filter drops bookmarks
// (https://github.com/kubernetes/kube-state-metrics/issues/2973). So it lists.
func startShard(t *testing.T, kubeconfig string, number int) func() ([]string, error) {
	return runKubeStateMetrics(t, []string{"KUBE_FEATURE_WatchListClient=false"}, "--kubeconfig", kubeconfig,
		"--resources", "configmaps,pods,services", "--shard", fmt.Sprint(number), "--total-shards", fmt.Sprint(fleetCopies))
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

// TestRecipeOfPrometheus: Prometheus' discovery takes the lines of deploy/RECIPES.md, and finds the same
// targets with them through watchfan as with kube-apiserver's address in them.
func TestRecipeOfPrometheus(t *testing.T) {
	parallel(t)
	program := binary(t, "DISCOVERY_BIN", "discovery")
	text, err := os.ReadFile("../../deploy/RECIPES.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)\n## Prometheus\n.*?\n```yaml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("deploy/RECIPES.md has no YAML for Prometheus")
	}
	c := privateCluster(t)
	p := privateWatchfan(t, c)
	p.waitReady(t)
	theirs, ours := programWays(t, c, p)
	createFollowed(t, theirs.target)
	var copies []func() ([]string, error)
	for _, w := range []programWay{theirs, ours} {
		dir := t.TempDir()
		recipe, token, state := filepath.Join(dir, "prometheus.yml"), filepath.Join(dir, "token"), filepath.Join(dir, "state")
		config := string(block[1])
		for placeholder, value := range map[string]string{
			"https://watchfan.watchfan.svc:443":                   w.base,
			"/var/run/secrets/kubernetes.io/serviceaccount/token": token,
			"/etc/watchfan/ca.crt":                                w.authority,
		} {
			if !strings.Contains(config, placeholder) {
				t.Fatalf("the recipe has no %s", placeholder)
			}
			config = strings.Replace(config, placeholder, value, 1)
		}
		for file, content := range map[string]string{recipe: config, token: w.token} {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		runFollower(t, "discovery", exec.Command(program, recipe, state))
		copies = append(copies, linesOf(state))
	}
	agree := followingProgram{name: "Prometheus' discovery"}.agree
	agree(t, []string{"first"}, copies...)
	admin := p.admin(t)
	if n, passed := admin.metric(t, "watchfan_lane_watchers", `resource="pods"`), admin.metric(t, "watchfan_passthrough_watches_total"); n != 1 || passed > 0 {
		t.Errorf("watchfan has %v watches of pods, and has passed %v through, want 1 and none", n, passed)
	}
	changeFollowed(t, theirs.target)
	agree(t, []string{`"__meta_kubernetes_pod_label_step":"2"`}, copies...)
}
