//go:build linux

package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
)

// A Cluster is a dev cluster: etcd and kube-apiserver, and nothing else.
type Cluster struct {
	load.Endpoint
	Child      *Child
	dir        string
	kubeconfig string
	Processes  []measure.Process // kube-apiserver and etcd
}

// StartCluster runs a fresh dev cluster, all in memory, and waits until it is ready. flags are
// passed to devcluster. stop removes the cluster's directory.
func StartCluster(ctx context.Context, devcluster string, flags ...string) (*Cluster, error) {
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
	args := append([]string{"up", "--dir", state, "--memory", "--unsafe-no-fsync"}, flags...)
	c.Child, err = startChild(dir, "devcluster", nil, devcluster, args...)
	if err == nil {
		err = c.await(ctx, filepath.Join(state, "ready"))
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
	token, err := os.ReadFile(ready.TokenFiles["admin"])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("no certificate in %s", ready.CAFile)
	}
	c.TLS, c.Token = load.TlsConfig(c.Addr, roots), strings.TrimSpace(string(token))
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
	Process           measure.Process
}

// StartProxy runs watchfan in front of c, on free ports, with a new certificate and more flags.
func StartProxy(ctx context.Context, watchfan string, c *Cluster, flags ...string) (*Proxy, error) {
	cert, err := makeCertificate(c.dir)
	if err != nil {
		return nil, err
	}
	return startProxyWith(ctx, "watchfan", watchfan, c, cert, flags...)
}

// startProxyWith is startProxy with a certificate and a name for its files.
func startProxyWith(ctx context.Context, name, watchfan string, c *Cluster, cert certificate,
	flags ...string) (*Proxy, error) {
	child, ports, err := startWatchfan(ctx, c.dir, name, watchfan, c.kubeconfig, cert, flags...)
	if err != nil {
		return nil, err
	}
	p := &Proxy{Child: child}
	var errs [3]error
	p.plain.Addr, errs[0] = netip.ParseAddrPort(ports.Insecure)
	p.TLS.Addr, errs[1] = netip.ParseAddrPort(ports.Secure)
	p.Admin.Addr, errs[2] = netip.ParseAddrPort(ports.Admin)
	if err := errors.Join(errs[:]...); err != nil {
		p.Child.Stop()
		return nil, fmt.Errorf("watchfan: %w", err)
	}
	p.TLS.TLS, p.TLS.Token = load.TlsConfig(p.TLS.Addr, cert.roots), c.Token
	p.Process = measure.Process{Name: "watchfan", PID: p.Child.Cmd.Process.Pid}
	return p, nil
}

// watchfanPorts are the addresses that watchfan listens on; "" is none.
type watchfanPorts struct{ Insecure, Secure, Admin string }

// startWatchfan runs watchfan on free ports and waits until it listens. Later flags replace earlier
// ones. Its files are in dir, under its name.
func startWatchfan(ctx context.Context, dir, name, watchfan, kubeconfig string, cert certificate,
	flags ...string) (*Child, watchfanPorts, error) {
	portsFile := filepath.Join(dir, name+"-ports.json")
	os.Remove(portsFile)
	var ports watchfanPorts
	c, err := startChild(dir, name, nil, watchfan, append([]string{"--kubeconfig", kubeconfig,
		"--bind-address=127.0.0.1", "--insecure-port=-1", "--secure-port=-1", "--admin-port=-1", "--ports-file", portsFile,
		"--tls-cert-file", cert.certFile, "--tls-private-key-file", cert.keyFile}, flags...)...)
	if err != nil {
		return nil, ports, err
	}
	if err := c.Await(ctx, portsFile, &ports); err != nil {
		c.Stop()
		return nil, ports, err
	}
	return c, ports, nil
}

// endpoint returns the port for the watchers of a peer.
func (p *Proxy) endpoint(of report.Peer) load.Endpoint {
	if of.TLS {
		return p.TLS
	}
	return p.plain
}
