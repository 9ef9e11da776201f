package e2e_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"k8s.io/client-go/util/consistencydetector"
	"k8s.io/klog/v2"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

var (
	overHTTP2 = flag.Bool("http2", false, "clients speak HTTP/2, and use TLS ports in place of plaintext ones")
	writes    = flag.Int("writes", 0, "writes of the oracle and informer tests; by default 800, and 300 with -short")
	watchers  = flag.Int("watchers", 0,
		"watchers of the oracle, each with a twin at kube-apiserver; by default 60, and 24 with -short")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *writes == 0 {
		*writes = sized(800, 300)
	}
	if *watchers == 0 {
		*watchers = sized(60, 24)
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
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.clusterLocked(t)
}

func (s *sharedProcesses) clusterLocked(t testing.TB) *cluster {
	t.Helper()
	if s.cluster == nil {
		c, err := proxytest.StartCluster(binary(t, "DEVCLUSTER_BIN", "devcluster"))
		if err != nil {
			t.Fatalf("start devcluster: %v", err)
		}
		s.cluster = &cluster{c}
	}
	return s.cluster
}

// sharedWatchfan returns the watchfan in front of the shared cluster.
func sharedWatchfan(t testing.TB) *watchfan {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.watchfanLocked(t)
}

func (s *sharedProcesses) watchfanLocked(t testing.TB) *watchfan {
	t.Helper()
	path := binary(t, "WATCHFAN_BIN", "watchfan")
	c := s.clusterLocked(t)
	if s.proxy == nil {
		dir, err := os.MkdirTemp("", "watchfan-e2e-")
		if err != nil {
			t.Fatal(err)
		}
		p, err := startWatchfan(path, dir, c.Ready.Kubeconfigs["admin"])
		if err != nil {
			t.Fatalf("start watchfan: %v", err)
		}
		p.own = c
		s.proxy, s.dir = p, dir
	}
	return s.proxy
}

func (s *sharedProcesses) stop() error {
	var failed error
	if s.proxy != nil {
		failed = s.proxy.stop()
		os.RemoveAll(s.dir)
	}
	if s.cluster != nil {
		if err := s.cluster.Stop(); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}
