package e2e_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// watchfan is a running watchfan.
type watchfan struct {
	*proxytest.Process
	ports struct {
		Insecure, Secure, Admin string
		PID                     int
	}
}

// privateWatchfan starts a watchfan for one test.
func privateWatchfan(t *testing.T, c *cluster, args ...string) *watchfan {
	t.Helper()
	return ownWatchfan(t, binary(t, "WATCHFAN_BIN", "watchfan"), c, args...)
}

// plainWatchfan is one without the race detector, which keeps what memory it has once had, and with which the compression of what hundreds of clients
// watch takes more than a processor.
func plainWatchfan(t *testing.T, c *cluster, args ...string) *watchfan {
	t.Helper()
	return ownWatchfan(t, binary(t, "WATCHFAN_PLAIN_BIN", "watchfan"), c, args...)
}

func ownWatchfan(t *testing.T, program string, c *cluster, args ...string) *watchfan {
	t.Helper()
	p, err := startWatchfan(program, t.TempDir(), c.Ready.Kubeconfigs["admin"], args...)
	if err != nil {
		t.Fatalf("start watchfan: %v", err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("watchfan's log:\n%s", proxytest.Tail(p.Log, 60))
		}
	})
	return p
}

func startWatchfan(program, dir, kubeconfig string, args ...string) (*watchfan, error) {
	ports := filepath.Join(dir, "ports")
	cmd := exec.Command(program, append([]string{"--kubeconfig", kubeconfig, "--insecure-port=-1", "--secure-port=-1", "--bind-address=127.0.0.1",
		"--admin-port=-1", "--cert-dir", dir, "--ports-file", ports, "--log-level=debug"}, args...)...)
	process, err := proxytest.StartProcess(cmd, filepath.Join(dir, "watchfan.log"))
	if err != nil {
		return nil, err
	}
	p := &watchfan{Process: process}
	if err := p.AwaitJSON(ports, &p.ports, hangTime(6*time.Second)); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// stop ends p as an orchestrator does, and returns what it did wrong in its life.
func (p *watchfan) stop() error {
	if err := p.End(syscall.SIGTERM, time.Minute); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	log, err := os.ReadFile(p.Log)
	if err != nil {
		return err
	}
	for _, bad := range []string{"DATA RACE", "panicked", "panic:", "fatal error:", "The cache is not what upstream is"} {
		if i := bytes.Index(log, []byte(bad)); i >= 0 {
			return fmt.Errorf("watchfan's log says %q:\n%s", bad, log[max(0, i-200):min(len(log), i+6000)])
		}
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("watchfan exited with %d:\n%s", code, proxytest.Tail(p.Log, 40))
	}
	return nil
}

// plain returns the way through the insecure port.
func (p *watchfan) plain(t testing.TB) *target {
	t.Helper()
	d := newTarget("watchfan", "http://"+p.ports.Insecure, nil)
	t.Cleanup(d.close)
	return d
}

// secure returns the way through the TLS port with a token; "" is none.
func (p *watchfan) secure(t testing.TB, token string) *target {
	t.Helper()
	d := newTarget("watchfan/tls", "https://"+p.ports.Secure, &tls.Config{InsecureSkipVerify: true})
	d.token = token
	t.Cleanup(d.close)
	return d
}

// admin returns the way to the admin port.
func (p *watchfan) admin(t testing.TB) *target {
	t.Helper()
	d := newTarget("watchfan/admin", "http://"+p.ports.Admin, nil)
	t.Cleanup(d.close)
	return d
}

// waitReady waits until /readyz is ok.
func (p *watchfan) waitReady(t testing.TB) {
	t.Helper()
	admin := p.admin(t)
	eventually(t, 20*time.Second, "/readyz", func() error {
		resp, err := admin.try(http.MethodGet, "/readyz", nil, "")
		if err == nil && resp.status != http.StatusOK {
			err = fmt.Errorf("%d: %s", resp.status, resp.body)
		}
		return err
	})
}

// awaitWatchers waits until n watches are served from the cache of the watchfan whose admin port d leads to.
func (d *target) awaitWatchers(t testing.TB, n int) {
	t.Helper()
	eventually(t, 10*time.Second, "watchfan_watchers", func() error {
		if got := d.metric(t, "watchfan_watchers"); got != float64(n) {
			return fmt.Errorf("%v, want %d", got, n)
		}
		return nil
	})
}

// residentMemory returns p's RSS in bytes.
func (p *watchfan) residentMemory(t testing.TB) int64 {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(content))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// sumMetric returns the sum of the samples of a metric that have all the labels, given as name="value".
func sumMetric(text, name string, labels ...string) float64 {
	sum := 0.0
sample:
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue sample
			}
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		v, err := strconv.ParseFloat(fields[0], 64)
		if err == nil {
			sum += v
		}
	}
	return sum
}
