package proxytest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// clusterPatience is how long a cluster may take for anything. On two busy cores it starts in ten
// seconds.
const clusterPatience = 2 * time.Minute

// Cluster is a real etcd and kube-apiserver, run by deploy/devcluster. It is for one goroutine at a
// time.
type Cluster struct {
	Program string       // devcluster
	Dir     string       // certificates are in pki, etcd's data is in etcd
	Ready   ClusterReady // as of the last AwaitReady

	args    []string
	process *Process // nil if it never began
}

// ClusterReady is what devcluster writes once clients may come.
type ClusterReady struct {
	Server       string            `json:"server"`       // kube-apiserver's URL
	CAFile       string            `json:"caFile"`       // of the authority of its certificate
	Kubeconfigs  map[string]string `json:"kubeconfigs"`  // files by user: admin, user, reader
	TokenFiles   map[string]string `json:"tokenFiles"`   // files by user
	EtcdEndpoint string            `json:"etcdEndpoint"` // etcd's URL
	Pids         map[string]int    `json:"pids"`         // by devcluster, etcd, kube-apiserver
}

// StartCluster starts a cluster in a new directory, in memory if possible, and returns when it is
// ready. The caller stops it.
func StartCluster(program string, args ...string) (*Cluster, error) {
	memory := "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		memory = ""
	}
	dir, err := os.MkdirTemp(memory, "watchfan-cluster-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: dir, Program: program, args: args}
	if err := c.Begin(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// RunCluster is StartCluster for a test. The cluster ends with it.
func RunCluster(t testing.TB, program string, args ...string) *Cluster {
	t.Helper()
	c, err := StartCluster(program, args...)
	if err != nil {
		t.Fatalf("start devcluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Begin starts c in its directory. If c has run there before, it has the same data, ports and
// tokens. DEVCLUSTER_ARGS has arguments for every cluster, such as feature gates.
func (c *Cluster) Begin() (err error) {
	args := append([]string{"--dir", c.Dir, "--unsafe-no-fsync"}, strings.Fields(os.Getenv("DEVCLUSTER_ARGS"))...)
	cmd := exec.Command(c.Program, append(args, c.args...)...)
	if c.process, err = StartProcess(cmd, filepath.Join(c.Dir, "devcluster.log")); err != nil {
		return err
	}
	return c.AwaitReady()
}

// SetArgs gives c other arguments for the next Begin.
func (c *Cluster) SetArgs(args ...string) { c.args = args }

// AwaitReady waits until clients may come, for the first time or after a restart, and sets c.Ready.
func (c *Cluster) AwaitReady() error {
	var ready ClusterReady
	if err := c.process.AwaitJSON(filepath.Join(c.Dir, "ready"), &ready, clusterPatience); err != nil {
		return err
	}
	c.Ready = ready
	return nil
}

// Halt ends c and keeps its directory, for Begin.
func (c *Cluster) Halt() error {
	if c.process == nil {
		return nil
	}
	if err := c.process.End(syscall.SIGTERM, clusterPatience); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Stop ends c and removes its directory.
func (c *Cluster) Stop() error { return errors.Join(c.Halt(), os.RemoveAll(c.Dir)) }

// Command runs one of devcluster's commands on c and returns what it prints.
func (c *Cluster) Command(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*clusterPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, c.Program, append(args, "--dir", c.Dir)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("devcluster %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// RestartAPIServer restarts kube-apiserver, or kills it with --kill, and returns when another
// process serves in its place.
func (c *Cluster) RestartAPIServer(args ...string) error {
	before := c.Ready.Pids["kube-apiserver"]
	if _, err := c.Command(append([]string{"restart-apiserver"}, args...)...); err != nil {
		return err
	}
	if err := c.AwaitReady(); err != nil {
		return err
	}
	if after := c.Ready.Pids["kube-apiserver"]; after == before {
		return fmt.Errorf("kube-apiserver is still process %d after a restart", before)
	}
	return nil
}

// Token returns a user's bearer token.
func (c *Cluster) Token(user string) (string, error) {
	token, err := os.ReadFile(c.Ready.TokenFiles[user])
	return strings.TrimSpace(string(token)), err
}

// Address returns kube-apiserver's host and port.
func (c *Cluster) Address() string { return strings.TrimPrefix(c.Ready.Server, "https://") }

// TLSConfig returns what a client needs to trust kube-apiserver.
func (c *Cluster) TLSConfig() (*tls.Config, error) {
	ca, err := os.ReadFile(c.Ready.CAFile)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: roots}, err
}

// KubeconfigAt writes the admin's kubeconfig to file, with kube-apiserver at address, a relay's.
func (c *Cluster) KubeconfigAt(address, file string) error {
	config, err := clientcmd.LoadFromFile(c.Ready.Kubeconfigs["admin"])
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.TLSServerName = "https://"+address, "localhost"
	}
	return clientcmd.WriteToFile(*config, file)
}
