package statustest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// need returns the absolute path of a program; without it the test is skipped.
func need(t *testing.T, variable, path string) string {
	t.Helper()
	if p := os.Getenv(variable); p != "" {
		path = p
	}
	path, err := exec.LookPath(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skipf("%v: make statustest builds or installs it", err)
	return ""
}

// process is a running program.
type process struct {
	*os.Process
	stop func() // asks it to end, and waits; the test's end does so too
}

// start runs a program, and returns once the program has written the JSON file ready, which start
// reads into v.
func start(t *testing.T, ready string, v any, program string, args ...string) process {
	t.Helper()
	var output bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, exited := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the program dies with the thread that started it
		err := cmd.Start()
		started <- err
		if err == nil {
			exited <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	p := process{cmd.Process, sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-exited; err != nil {
			t.Errorf("%s: %v", program, err)
		}
		if t.Failed() {
			t.Logf("%s: %.20000s", program, output.String())
		}
	})}
	t.Cleanup(p.stop)
	eventually(t, program+" to be ready", func() error {
		content, err := os.ReadFile(ready)
		if err == nil {
			err = json.Unmarshal(content, v)
		}
		return err
	})
	return p
}

// startCluster starts etcd and kube-apiserver, and returns an administrator's kubeconfig.
func startCluster(t *testing.T) string {
	t.Helper()
	program := need(t, "DEVCLUSTER_BIN", "../../../bin/devcluster")
	dir := t.TempDir()
	var ready struct{ Kubeconfigs map[string]string }
	start(t, filepath.Join(dir, "ready"), &ready, program, "up", "--dir", dir, "--unsafe-no-fsync",
		"--apiserver-arg", "shutdown-watch-termination-grace-period=2s")
	return ready.Kubeconfigs["admin"]
}

// watchfan is a running watchfan.
type watchfan struct {
	process
	kubeconfig string
	api, admin string // addresses of the insecure and the admin port
}

// startWatchfan starts a watchfan. adminPort is a number, or -1 for any.
func startWatchfan(t *testing.T, kubeconfig, adminPort string) *watchfan {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ports")
	var ports struct{ Insecure, Admin string }
	p := start(t, file, &ports, need(t, "WATCHFAN_BIN", "../../../bin/watchfan"), "--kubeconfig", kubeconfig,
		"--insecure-port=-1", "--secure-port=0", "--self-check-interval=4s",
		"--admin-port="+adminPort, "--ports-file", file)
	return &watchfan{p, kubeconfig, ports.Insecure, ports.Admin}
}

// watch opens n watches and counts the lines that they bring. In JSON each line is an event. They
// end with the test.
func (w *watchfan) watch(t *testing.T, n int, path, accept string, lines *atomic.Int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var open sync.WaitGroup
	t.Cleanup(func() { cancel(); open.Wait() })
	for range n {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.api+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, resp.Status)
		}
		open.Go(func() {
			defer resp.Body.Close()
			for r := bufio.NewReader(resp.Body); ; lines.Add(1) {
				if _, err := r.ReadString('\n'); err != nil {
					return
				}
			}
		})
	}
}

// stall opens a watch whose client reads only the beginning. It lasts until end is called.
func (w *watchfan) stall(t *testing.T, path, userAgent string) (end func()) {
	t.Helper()
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if failed := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) }); failed != nil {
			return failed
		}
		return err
	}}
	conn, err := small.DialContext(t.Context(), "tcp", w.api)
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = conn.Close() })
	t.Cleanup(end)
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: %s\r\n\r\n", path, userAgent); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 50)); err != nil {
		t.Fatal(err)
	}
	return end
}

// write sends an object in JSON, or a merge patch.
func (w *watchfan) write(method, path, body string) error {
	req, err := http.NewRequest(method, "http://"+w.api+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", map[string]string{http.MethodPost: "application/json",
		http.MethodPatch: "application/merge-patch+json"}[method])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return err
}

// load patches a ConfigMap perSecond times a second until stop is called.
func (w *watchfan) load(t *testing.T, perSecond int, path string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		//testlint:allow timer the pace of the load
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := w.write(http.MethodPatch, path, fmt.Sprintf(`{"data":{"n":"%d"}}`, n)); err != nil &&
				ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

// deliveredEvents returns the number of delivered events from /debug/lanes.
func (w *watchfan) deliveredEvents() (int64, error) {
	resp, err := http.Get("http://" + w.admin + "/debug/lanes?format=json")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var answer struct {
		Totals struct{ DeliveredEvents int64 }
	}
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return answer.Totals.DeliveredEvents, err
}

// patience only ends what hangs.
const patience = 2 * time.Minute

// eventually waits until f returns nil.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	//testlint:allow timer the condition is looked at again
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v after %s", what, err, patience)
}
