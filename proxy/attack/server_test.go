package attack_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
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
	authority, err := w.cluster.Authority()
	if err != nil {
		t.Fatal(err)
	}
	program := proxytest.Binary(t, "WATCHFAN_BIN", "watchfan", "attack")
	// Lanes that only attackers read end soon after them, and are cold again for the next.
	args = append(args, "--log-level=warn", "--idle-timeout=1m", "--client-ca-file", authority.File)
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

// way returns an identity's way to the TLS port.
func (s *server) way(id identity) way {
	w := way{name: id.name, base: "https://" + s.secure, token: id.token, tenant: id.tenant,
		tls: &tls.Config{InsecureSkipVerify: true}}
	if id.certificate != nil {
		w.tls.Certificates = []tls.Certificate{*id.certificate}
	}
	return w
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
	for _, id := range w.honest {
		tokens = append(tokens, id.token)
	}
	for _, token := range tokens {
		if token != "" && bytes.Contains(log, []byte(token)) {
			return errors.New("watchfan's log holds a token")
		}
	}
	return err
}

// level is what the process uses at one time.
type level struct {
	at                             time.Time
	resident, heap                 float64 // bytes
	goroutines, files, connections float64
	cpu, apiserver                 time.Duration // of the process and of kube-apiserver, since their start
}

// level asks the process.
func (s *server) level(ctx context.Context) (level, error) {
	_, _, body, err := s.metrics.send(ctx, request{method: http.MethodGet, uri: "/metrics"})
	if err != nil {
		return level{}, err
	}
	metric := func(name string) float64 { return proxytest.SumMetric(string(body), name) }
	l := level{at: time.Now(), heap: metric("go_memstats_heap_inuse_bytes"), goroutines: metric("go_goroutines"),
		files:       metric("process_open_fds"),
		connections: metric("watchfan_client_connections"), cpu: processorTime(s.pid), apiserver: processorTime(s.apiserver)}
	resident, err := proxytest.ResidentMemory(s.pid)
	l.resident = float64(resident)
	return l, err
}

// live returns the memory that the process has in use after a collection: its heap and its stacks.
func (s *server) live(ctx context.Context) (float64, error) {
	_, _, _, err := s.metrics.send(ctx, request{method: http.MethodGet, uri: "/debug/pprof/heap?gc=1"})
	if err != nil {
		return 0, err
	}
	_, _, body, err := s.metrics.send(ctx, request{method: http.MethodGet, uri: "/metrics"})
	return proxytest.SumMetric(string(body), "go_memstats_heap_inuse_bytes") +
		proxytest.SumMetric(string(body), "go_memstats_stack_inuse_bytes"), err
}

// processorTime returns the processor time that a process has used; 0 if it is not known.
func processorTime(pid int) time.Duration {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The first is field 3, see proc_pid_stat(5).
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	const tick = time.Second / 100 // USER_HZ
	return time.Duration(user+system) * tick
}

// within returns an error if l is not as low as the quiet level. It allows 20 % more, and what a
// few connections that end still use.
func (l level) within(quiet level) error {
	for _, m := range []struct {
		name              string
		now, quiet, spare float64
	}{{"connections", l.connections, quiet.connections, 20}, {"goroutines", l.goroutines, quiet.goroutines,
		100}, {"files", l.files, quiet.files, 40}} {
		if m.now > 1.2*m.quiet+m.spare {
			return fmt.Errorf("%.0f %s, and %.0f in the quiet phase", m.now, m.name, m.quiet)
		}
	}
	return nil
}
