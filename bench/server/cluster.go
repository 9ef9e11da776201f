package server

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// A Cluster is a dev cluster: etcd and kube-apiserver, and nothing else.
type Cluster struct {
	load.Endpoint
	Child      *Child
	dir        string
	kubeconfig string
	Tokens     map[string]string // by user: admin, who may do everything, reader, who may read, and user
	Processes  []measure.Process // kube-apiserver and etcd

	certFile, keyFile string // of the proxies in front
	roots             *x509.CertPool
}

// StartCluster runs a fresh dev cluster, all in memory, and waits until it is ready. Stop removes
// the cluster's directory.
func StartCluster(ctx context.Context, devcluster string) (*Cluster, error) {
	memory := "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		memory = ""
	}
	dir, err := os.MkdirTemp(memory, "watchfan-bench-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir}
	state := filepath.Join(dir, "cluster")
	c.Child, err = startChild("devcluster", devcluster, "up", "--dir", state, "--memory", "--unsafe-no-fsync")
	if err == nil {
		err = c.await(ctx, filepath.Join(state, "ready"))
	}
	if err == nil {
		err = c.certify()
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// await waits for the file that deploy/devcluster writes when it is ready.
func (c *Cluster) await(ctx context.Context, path string) error {
	var ready struct {
		Server, CAFile          string
		Kubeconfigs, TokenFiles map[string]string
		Pids                    map[string]int
	}
	if err := c.Child.Await(ctx, path, &ready); err != nil {
		return err
	}
	var err error
	if c.Addr, err = load.Loopback(ready.Server); err != nil {
		return err
	}
	ca, err := os.ReadFile(ready.CAFile)
	if err != nil {
		return err
	}
	c.Tokens = make(map[string]string)
	for user, file := range ready.TokenFiles {
		token, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		c.Tokens[user] = strings.TrimSpace(string(token))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("no certificate in %s", ready.CAFile)
	}
	c.TLS, c.Token = load.TlsConfig(c.Addr.Addr(), roots), c.Tokens["admin"]
	c.kubeconfig = ready.Kubeconfigs["admin"]
	for _, name := range []string{"kube-apiserver", "etcd"} {
		c.Processes = append(c.Processes, measure.Process{Name: name, PID: ready.Pids[name]})
	}
	return nil
}

func (c *Cluster) Stop() {
	if c.Child != nil {
		c.Child.Stop()
	}
	os.RemoveAll(c.dir)
}

// A Proxy is a watchfan in front of a cluster.
type Proxy struct {
	Child             *Child
	plain, TLS, Admin load.Endpoint
}

// StartProxy runs watchfan in front of c, on free ports, with a certificate of c's, and waits until it
// listens. Later flags replace earlier ones.
func StartProxy(ctx context.Context, watchfan string, c *Cluster, flags ...string) (*Proxy, error) {
	portsFile := filepath.Join(c.dir, "watchfan-ports.json")
	os.Remove(portsFile)
	child, err := startChild("watchfan", watchfan, append([]string{"--kubeconfig", c.kubeconfig,
		"--bind-address=127.0.0.1", "--insecure-port=-1", "--secure-port=-1", "--admin-port=-1", "--ports-file", portsFile,
		"--tls-cert-file", c.certFile, "--tls-private-key-file", c.keyFile}, flags...)...)
	if err != nil {
		return nil, err
	}
	var ports struct{ Insecure, Secure, Admin netip.AddrPort }
	if err := child.Await(ctx, portsFile, &ports); err != nil {
		child.Stop()
		return nil, fmt.Errorf("watchfan: %w", err)
	}
	p := &Proxy{Child: child}
	p.plain.Addr, p.TLS.Addr, p.Admin.Addr = ports.Insecure, ports.Secure, ports.Admin
	p.TLS.TLS, p.TLS.Token = load.TlsConfig(p.TLS.Addr.Addr(), c.roots), c.Token
	return p, nil
}

// makeCertificate makes a certificate for loopback and its key, in PEM. roots trust it.
func makeCertificate() (cert, key []byte, roots *x509.CertPool, err error) {
	cert, key, err = downstream.MakeCertificate("localhost")
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return cert, key, roots, err
}

// certify makes the certificate of all proxies.
func (c *Cluster) certify() error {
	cert, key, roots, err := makeCertificate()
	if err == nil {
		c.certFile, err = c.WriteFile("proxy.crt", cert)
	}
	if err == nil {
		c.keyFile, err = c.WriteFile("proxy.key", key)
	}
	c.roots = roots
	return err
}

// WriteFile writes a file that lives as long as the cluster, and returns its path.
func (c *Cluster) WriteFile(name string, data []byte) (path string, err error) {
	path = filepath.Join(c.dir, name)
	return path, os.WriteFile(path, data, 0o600)
}
