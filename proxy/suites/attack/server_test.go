package attack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// server is under attack: a watchfan, or kube-apiserver itself for comparison.
type server struct {
	secure, insecure string  // host:port; insecure is "" at kube-apiserver
	admin            string  // the same
	pid              int     // of the process
	apiserver        int     // process of kube-apiserver
	metrics          *client // of the process
	watchfan         *proxytest.Watchfan
}

// startServer starts a watchfan in front of the cluster, or returns the cluster's kube-apiserver.
func startServer(t *testing.T, w *world, args ...string) *server {
	t.Helper()
	apiserver := w.cluster.Ready.Pids["kube-apiserver"]
	if *target == "kube-apiserver" {
		return &server{secure: w.cluster.Address(), pid: apiserver, apiserver: apiserver, metrics: newClient(w.admin)}
	}
	return startProgram(t, w, proxytest.Binary(t, "WATCHFAN_BIN", "watchfan", "attack"), args...)
}

// startProgram starts a watchfan by a program.
func startProgram(t *testing.T, w *world, program string, args ...string) *server {
	t.Helper()
	apiserver := w.cluster.Ready.Pids["kube-apiserver"]
	authority, err := w.cluster.Authority()
	if err != nil {
		t.Fatal(err)
	}
	// Lanes that only attackers read end soon after them, and are cold again for the next.
	args = append(args, "--config", viewsConfig(t), "--log-level=warn", "--idle-timeout=1m", "--client-ca-file", authority.File)
	p, err := proxytest.StartWatchfan(program, t.TempDir(), w.cluster.Ready.Kubeconfigs["admin"], patience, args...)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{secure: p.Ports.Secure, insecure: p.Ports.Insecure, admin: p.Ports.Admin, pid: p.Cmd.Process.Pid, apiserver: apiserver,
		metrics: newClient(way{base: "http://" + p.Ports.Admin}), watchfan: p}
	t.Cleanup(func() {
		s.metrics.close()
		_ = p.Stop() // again, if the test got so far
		if t.Failed() {
			t.Logf("watchfan's log:\n%s", proxytest.Tail(p.Log, 40))
		}
	})
	return s
}

// way returns an honest user's way to the TLS port.
func (s *server) way(user way) way {
	user.base = "https://" + s.secure
	return user
}

// plain returns the way to the insecure port; at kube-apiserver, which has none, the admin's.
func (s *server) plain(admin way) way {
	if s.insecure == "" {
		return admin
	}
	return way{name: "insecure port", base: "http://" + s.insecure}
}

// stop ends watchfan and returns what it did wrong in its life. Its log must not hold a token.
func (s *server) stop(w *world) error {
	if s.watchfan == nil {
		return nil
	}
	if err := s.watchfan.Stop(); err != nil {
		return err
	}
	log, err := os.ReadFile(s.watchfan.Log)
	tokens := append([]string{w.hostile.Crawler, w.hostile.Everything}, w.hostile.Tenants...)
	for _, user := range w.honest {
		tokens = append(tokens, user.token)
	}
	for _, token := range tokens {
		if token != "" && bytes.Contains(log, []byte(token)) {
			return errors.New("watchfan's log holds a token")
		}
	}
	return err
}

// level is what the process uses at one time: "resident" and "heap" memory, "goroutines", "files" and
// "connections". "cpu" and "apiserver" are the seconds that the process and kube-apiserver have computed
// since they started, and "at" is the time in seconds.
type level map[string]float64

func (l level) String() string {
	return fmt.Sprintf("%4.0f MB resident, %4.0f MB heap, %5.0f goroutines, %5.0f files, %5.0f connections",
		l["resident"]/1e6, l["heap"]/1e6, l["goroutines"], l["files"], l["connections"])
}

// level asks the process.
func (s *server) level(ctx context.Context) (level, error) {
	_, _, body, err := s.metrics.send(ctx, request{method: http.MethodGet, uri: "/metrics"})
	if err != nil {
		return nil, err
	}
	resident, err := proxytest.ResidentMemory(s.pid)
	l := level{"at": float64(time.Now().UnixNano()) / 1e9, "cpu": processorTime(s.pid), "apiserver": processorTime(s.apiserver),
		"resident": float64(resident)}
	for name, metric := range map[string]string{"heap": "go_memstats_heap_inuse_bytes", "goroutines": "go_goroutines",
		"files": "process_open_fds", "connections": "watchfan_client_connections"} {
		l[name] = proxytest.SumMetric(string(body), metric)
	}
	return l, err
}

// medians returns the median of each quantity.
func medians(levels []level) level {
	l := make(level)
	for name := range levels[0] {
		var all []float64
		for _, one := range levels {
			all = append(all, one[name])
		}
		l[name] = median(all)
	}
	return l
}

// live returns the memory that the process has in use: its stacks, and its heap as a collection has just
// found it, from samples. The size of the heap would not do: it grows by garbage while the collector works
// and while the answer is on its way, to twice as much on a busy machine.
func (s *server) live(ctx context.Context) (bytes float64, err error) {
	_, _, body, err := s.metrics.send(ctx, request{method: http.MethodGet, uri: "/debug/pprof/heap?gc=1&debug=1"})
	if err != nil {
		return 0, err
	}
	const sampled = 512 << 10 // bytes for each sample
	var n, size, stacks float64
	for line := range strings.Lines(string(body)) {
		if _, err := fmt.Sscanf(line, "%f: %f [", &n, &size); err == nil && n > 0 {
			bytes += size / (1 - math.Exp(-size/n/sampled))
		}
		_, _ = fmt.Sscanf(line, "# Stack = %f /", &stacks)
	}
	if bytes == 0 || stacks == 0 {
		return 0, fmt.Errorf("this is no profile: %.200s", body)
	}
	return bytes + stacks, nil
}

// processorTime returns how many seconds a process has computed; 0 if that is not known.
func processorTime(pid int) float64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The first is field 3, see proc_pid_stat(5).
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // USER_HZ
}

// within returns an error if l is not as low as the quiet level. It allows 20 % more, and what a
// few connections that end still use.
func (l level) within(quiet level) error {
	for name, spare := range map[string]float64{"connections": 20, "goroutines": 100, "files": 40} {
		if l[name] > 1.2*quiet[name]+spare {
			return fmt.Errorf("%.0f %s, and %.0f in the quiet phase", l[name], name, quiet[name])
		}
	}
	return nil
}
