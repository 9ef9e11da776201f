package e2e_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// watchfan is a running watchfan.
type watchfan struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	ports  struct {
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
	p, err := startWatchfan(program, t.TempDir(), c.ready.Kubeconfigs["admin"], args...)
	if err != nil {
		t.Fatalf("start watchfan: %v", err)
	}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("watchfan's log:\n%s", tail(p.log, 60))
		}
	})
	return p
}

func startWatchfan(program, dir, kubeconfig string, args ...string) (*watchfan, error) {
	p := &watchfan{log: filepath.Join(dir, "watchfan.log"), exited: make(chan struct{})}
	ports := filepath.Join(dir, "ports")
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(program, append([]string{"--kubeconfig", kubeconfig, "--insecure-port=-1", "--secure-port=-1", "--bind-address=127.0.0.1",
		"--admin-port=-1", "--cert-dir", dir, "--ports-file", ports, "--log-level=debug"}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := launch(p.cmd.Start); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		content, err := os.ReadFile(ports)
		if err == nil && json.Unmarshal(content, &p.ports) == nil {
			return p, nil
		}
		select {
		case <-p.exited:
			return nil, fmt.Errorf("watchfan has exited:\n%s", tail(p.log, 40))
		default:
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("watchfan has not opened its ports:\n%s", tail(p.log, 40)), p.stop())
		}
	}
}

// stop ends p as an orchestrator does, and returns what it did wrong in its life.
func (p *watchfan) stop() error {
	select {
	case <-p.exited:
	default:
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.exited:
	case <-time.After(25 * time.Second):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // prints its goroutines
		time.Sleep(time.Second)
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("watchfan did not stop within 25 s of SIGTERM:\n%s", tail(p.log, 200))
	}
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	for _, bad := range []string{"DATA RACE", "panicked", "panic:", "fatal error:", "The cache is not what upstream is"} {
		if i := bytes.Index(log, []byte(bad)); i >= 0 {
			return fmt.Errorf("watchfan's log says %q:\n%s", bad, log[max(0, i-200):min(len(log), i+6000)])
		}
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("watchfan exited with %d:\n%s", code, tail(p.log, 40))
	}
	return nil
}

func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(content)), "\n"), func(l string) bool { return strings.Contains(l, "Feature gate") })
	return strings.Join(all[max(0, len(all)-lines):], "\n")
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

// residentMemory returns p's RSS in bytes.
func (p *watchfan) residentMemory(t testing.TB) int64 {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
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
