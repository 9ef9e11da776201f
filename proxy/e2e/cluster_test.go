package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cluster is a devcluster: etcd and kube-apiserver.
type cluster struct {
	program string
	dir     string
	args    []string
	cmd     *exec.Cmd
	exited  chan struct{}
	ready   readyFile
}

// readyFile is what devcluster writes once clients may come.
type readyFile struct {
	Server      string            `json:"server"`
	CAFile      string            `json:"caFile"`
	Kubeconfigs map[string]string `json:"kubeconfigs"`
	TokenFiles  map[string]string `json:"tokenFiles"`
	Pids        map[string]int    `json:"pids"`
}

// endWatches has kube-apiserver end its watches when it is stopped. By default it waits for them, and devcluster kills it after 30 s.
var endWatches = []string{"--apiserver-arg", "shutdown-watch-termination-grace-period=2s"}

// privateCluster starts a cluster for a test that hurts it.
func privateCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	binary(t, "WATCHFAN_BIN", "watchfan")
	c, err := startCluster(binary(t, "DEVCLUSTER_BIN", "devcluster"), args...)
	if err != nil {
		t.Fatalf("start devcluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func startCluster(program string, args ...string) (*cluster, error) {
	memory := "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		memory = ""
	}
	dir, err := os.MkdirTemp(memory, "watchfan-e2e-cluster-")
	if err != nil {
		return nil, err
	}
	c := &cluster{program: program, dir: dir, args: args}
	if err := c.begin(); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// begin starts c in its directory, where it may have run before: then it has the same data, ports and tokens.
func (c *cluster) begin() error {
	log, err := os.OpenFile(filepath.Join(c.dir, "devcluster.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c.cmd = exec.Command(c.program, append([]string{"--dir", c.dir, "--unsafe-no-fsync"}, c.args...)...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := launch(c.cmd.Start); err != nil {
		return err
	}
	c.exited = make(chan struct{})
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	if err := c.waitReady(90 * time.Second); err != nil {
		return fmt.Errorf("%w; it said:\n%s", err, tail(log.Name(), 60))
	}
	return nil
}

// halt ends c and keeps its directory, for begin.
func (c *cluster) halt() error {
	if c.exited == nil {
		return nil
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
		return nil
	case <-time.After(40 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.exited
		return errors.New("devcluster did not stop within 40 s of SIGTERM")
	}
}

func (c *cluster) stop() error { return errors.Join(c.halt(), os.RemoveAll(c.dir)) }

func (c *cluster) waitReady(patience time.Duration) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(30 * time.Millisecond) {
		content, err := os.ReadFile(filepath.Join(c.dir, "ready"))
		if err == nil && json.Unmarshal(content, &c.ready) == nil {
			return nil
		}
		select {
		case <-c.exited:
			return errors.New("devcluster has exited")
		default:
		}
	}
	return fmt.Errorf("devcluster is not ready after %s", patience)
}

// command runs one of devcluster's commands on c.
func (c *cluster) command(t testing.TB, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, c.program, append(args, "--dir", c.dir)...).CombinedOutput()
	if err != nil {
		t.Fatalf("devcluster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// restart restarts kube-apiserver, with --kill if it is to be killed, and proves that another process serves now.
func (c *cluster) restart(t testing.TB, args ...string) {
	t.Helper()
	before := c.ready.Pids["kube-apiserver"]
	c.command(t, append([]string{"restart-apiserver"}, args...)...)
	if err := c.waitReady(60 * time.Second); err != nil {
		t.Fatal(err)
	}
	if after := c.ready.Pids["kube-apiserver"]; after == before {
		t.Fatalf("kube-apiserver has still pid %d after a restart", after)
	}
}

func (c *cluster) token(t testing.TB, user string) string {
	t.Helper()
	token, err := os.ReadFile(c.ready.TokenFiles[user])
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// as returns the way straight to kube-apiserver for a user; "" is nobody.
func (c *cluster) as(t testing.TB, user string) *target {
	t.Helper()
	ca, err := os.ReadFile(c.ready.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	d := newTarget("kube-apiserver", c.ready.Server, &tls.Config{RootCAs: roots})
	if user != "" {
		d.token = c.token(t, user)
	}
	t.Cleanup(d.close)
	return d
}

// direct returns the admin's way straight to kube-apiserver.
func (c *cluster) direct(t testing.TB) *target { t.Helper(); return c.as(t, "admin") }

// namespaces creates namespaces, and deletes what the tests made in them with the cluster.
func createNamespaces(t testing.TB, d *target, names ...string) {
	t.Helper()
	for _, name := range names {
		d.create(t, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name))
	}
}

// metric returns the sum of a metric's samples whose labels contain all of the given ones.
func (d *target) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	resp := d.get(t, "/metrics")
	if resp.status != http.StatusOK {
		t.Fatalf("GET /metrics from %s: %d", d.name, resp.status)
	}
	return sumMetric(string(resp.body), name, labels...)
}
