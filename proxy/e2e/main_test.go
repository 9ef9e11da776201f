package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/consistencydetector"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

var (
	churnFor = flag.Duration("churn", 8*time.Second,
		"how long writers write in the oracle and informer tests; the long mode is 30s")
	watchers  = flag.Int("watchers", 60, "watchers of the oracle, each with a twin at kube-apiserver")
	fanOut    = flag.Int("fan-out", 1000, "watchers that must share one watch of kube-apiserver")
	writes    = flag.Int("writes", 100, "writes per second of the oracle and informer tests")
	overHTTP2 = flag.Bool("http2", false, "clients speak HTTP/2, and use TLS ports in place of plaintext ones")
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()),
		"seed of all random choices; the tests that use it log it")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// As proxytest.Detectors, which would also concern the kube-apiservers that this process starts.
	consistencydetector.SetDataConsistencyDetectionForWatchListEnabledForTest(true)
	go noteStalls()
	_ = flag.Set("test.parallel", "8") // tests mostly wait
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// binary returns the path of a program that make test builds.
func binary(t testing.TB, env, name string) string {
	t.Helper()
	return proxytest.Binary(t, env, name, "test")
}

// shared are the cluster and the watchfan of most tests. The first test that needs them starts
// them.
var shared sharedProcesses

type sharedProcesses struct {
	mu      sync.Mutex
	cluster *cluster
	proxy   *watchfan
	dir     string // of the watchfan
}

func sharedCluster(t testing.TB) *cluster {
	t.Helper()
	binary(t, "DEVCLUSTER_BIN", "devcluster")
	binary(t, "WATCHFAN_BIN", "watchfan")
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
	path := binary(t, "WATCHFAN_BIN", "watchfan")
	binary(t, "DEVCLUSTER_BIN", "devcluster")
	shared.mu.Lock()
	defer shared.mu.Unlock()
	c := shared.clusterLocked(t)
	if shared.proxy == nil {
		dir, err := os.MkdirTemp("", "watchfan-e2e-")
		if err != nil {
			t.Fatal(err)
		}
		p, err := startWatchfan(path, dir, c.Ready.Kubeconfigs["admin"])
		if err != nil {
			t.Fatalf("start watchfan: %v", err)
		}
		p.own = c
		shared.proxy, shared.dir = p, dir
	}
	return shared.proxy
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

// hangTime returns how long to wait for what takes d on a quiet machine before it counts as a hang.
// A machine may be ten times slower.
func hangTime(d time.Duration) time.Duration { return min(10*d, 5*time.Minute) }

// eventually waits until f returns nil, and fails the test if it hangs. patience is how long f may
// take on a quiet machine.
func eventually(t testing.TB, patience time.Duration, what string, f func() error) {
	t.Helper()
	patience = hangTime(patience)
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// stalled is the longest time for which this process has waited for a processor.
var stalled atomic.Int64

// noteStalls keeps stalled up to date and never returns.
func noteStalls() {
	const pause = 10 * time.Millisecond
	for {
		begin := time.Now()
		time.Sleep(pause)
		longest(&stalled, time.Since(begin)-pause)
	}
}

// apart returns how far apart two moments may be that are at most d apart on a quiet machine: four
// processes may have stalled one after the other.
func apart(d time.Duration) time.Duration { return d + 4*time.Duration(stalled.Load()) }
