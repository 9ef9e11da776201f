package e2e_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"k8s.io/client-go/util/consistencydetector"
	"k8s.io/klog/v2"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

var (
	overHTTP2 = flag.Bool("http2", false, "clients speak HTTP/2, and use TLS ports in place of plaintext ones")
	writes    = flag.Int("writes", 0, "writes of the oracle and informer tests; by default 800, and 300 with -short")
	watchers  = flag.Int("watchers", 0,
		"watchers of the oracle, each with a twin at kube-apiserver; by default 60, and 24 with -short")
	observed    = flag.Int("observed", 0, "events that are observed beside faults; by default 20000, and 4000 with -short")
	killsWanted = flag.Int("kills", 0, "kills of the tier; by default 2, and 10 of 1,000 clients with -tags nightly")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *writes == 0 {
		*writes = sized(800, 300)
	}
	if *watchers == 0 {
		*watchers = sized(60, 24)
	}
	if *observed == 0 {
		*observed = sized(20_000, 4000)
	}
	klog.LogToStderr(false) // informers of this process log to it
	klog.SetOutput(io.Discard)
	// As proxytest.Detectors, which would also concern the kube-apiservers that this process starts.
	consistencydetector.SetDataConsistencyDetectionForWatchListEnabledForTest(true)
	_ = flag.Set("test.parallel", "1000") // turns has the bound
	code := m.Run()
	for _, s := range []*sharedProcesses{&shared, &quiet} {
		if err := s.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// sized returns the size of a test: whole, or small with -short.
func sized(whole, small int) int {
	if testing.Short() {
		return small
	}
	return whole
}

// binary returns the path of a program that make e2e builds.
func binary(t testing.TB, env, name string) string {
	t.Helper()
	return proxytest.Binary(t, env, name, "e2e")
}

// shared are the cluster and the watchfan of most tests. In front of the cluster quiet, tests only read,
// and compare what they read in all namespaces. The first test that needs them starts them.
var shared, quiet sharedProcesses

type sharedProcesses struct {
	mu      sync.Mutex
	cluster *cluster
	proxy   *watchfan
	dir     string // of the watchfan
}

func sharedCluster(t testing.TB) *cluster {
	t.Helper()
	c, _ := shared.start(t, func(*cluster) {})
	return c
}

// sharedWatchfan returns the watchfan in front of the shared cluster.
func sharedWatchfan(t testing.TB) *watchfan {
	t.Helper()
	_, p := shared.start(t, func(*cluster) {})
	return p
}

// start starts what does not run yet. It prepares the cluster before there is a watchfan.
func (s *sharedProcesses) start(t testing.TB, prepare func(*cluster)) (*cluster, *watchfan) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	path := binary(t, "WATCHFAN_BIN", "watchfan")
	if s.proxy != nil {
		return s.cluster, s.proxy
	}
	c, err := proxytest.StartCluster(binary(t, "DEVCLUSTER_BIN", "devcluster"))
	if err != nil {
		t.Fatalf("start devcluster: %v", err)
	}
	s.cluster = &cluster{c}
	prepare(s.cluster)
	if s.dir, err = os.MkdirTemp("", "watchfan-e2e-"); err != nil {
		t.Fatal(err)
	}
	if s.proxy, err = startWatchfan(path, s.dir, c.Ready.Kubeconfigs["admin"]); err != nil {
		t.Fatalf("start watchfan: %v", err)
	}
	s.proxy.own = s.cluster
	return s.cluster, s.proxy
}

func (s *sharedProcesses) stop() (failed error) {
	if s.proxy != nil {
		failed = s.proxy.Stop()
		os.RemoveAll(s.dir)
	}
	if s.cluster != nil {
		failed = errors.Join(failed, s.cluster.Stop())
	}
	return failed
}
