package e2e_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// cluster is a devcluster: etcd and kube-apiserver.
type cluster struct{ *proxytest.Cluster }

// endWatches lets kube-apiserver end its watches when it stops. By default it waits for them, and
// devcluster kills it after 30 s.
var endWatches = []string{"--apiserver-arg", "shutdown-watch-termination-grace-period=2s"}

// privateCluster starts a cluster for a test that hurts it.
func privateCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	binary(t, "WATCHFAN_BIN", "watchfan")
	return &cluster{proxytest.RunCluster(t, binary(t, "DEVCLUSTER_BIN", "devcluster"), args...)}
}

// restart restarts kube-apiserver; --kill kills it.
func (c *cluster) restart(t testing.TB, args ...string) {
	t.Helper()
	if err := c.RestartAPIServer(args...); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) token(t testing.TB, user string) string {
	t.Helper()
	token, err := c.Token(user)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// as returns the way straight to kube-apiserver for a user; "" is nobody.
func (c *cluster) as(t testing.TB, user string) *target {
	t.Helper()
	config, err := c.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	d := newTarget("kube-apiserver", c.Ready.Server, config)
	if user != "" {
		d.token = c.token(t, user)
	}
	t.Cleanup(d.close)
	return d
}

// through returns the flag that has a watchfan find kube-apiserver behind a relay.
func (c *cluster) through(t testing.TB, r *proxytest.Relay) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := c.KubeconfigAt(r.Address(), file); err != nil {
		t.Fatal(err)
	}
	return "--kubeconfig=" + file
}

// direct returns the admin's way straight to kube-apiserver.
func (c *cluster) direct(t testing.TB) *target { t.Helper(); return c.as(t, "admin") }

// createNamespaces creates namespaces. They end with the cluster.
func createNamespaces(t testing.TB, d *target, names ...string) {
	t.Helper()
	for _, name := range names {
		d.create(t, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`,
			name))
	}
}

func makeConfigMap(t testing.TB, d *target, ns, name, labels string) uint64 {
	t.Helper()
	return d.create(t, "/api/v1/namespaces/"+ns+"/configmaps",
		fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{%s}},"data":{"k":"0"}}`, name, labels))
}

// metric returns the sum of a metric's samples whose labels contain all of the given ones.
func (d *target) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	resp := d.get(t, "/metrics")
	if resp.status != http.StatusOK {
		t.Fatalf("GET /metrics from %s: %d", d.name, resp.status)
	}
	return proxytest.SumMetric(string(resp.body), name, labels...)
}

// watchList is a feature gate of kube-apiserver. Before Kubernetes 1.34 it is off by default, and sendInitialEvents is
// then an error.
const watchList = "WatchList"

// enables reports whether kube-apiserver has a feature gate that is on.
func (d *target) enables(t testing.TB, gate string) bool {
	t.Helper()
	return d.metric(t, "kubernetes_feature_enabled", fmt.Sprintf("name=%q", gate)) == 1
}
