//go:build linux

package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/watchfan/watchfan/bench/measure"
)

// A cluster is a dev cluster: etcd and kube-apiserver, and nothing else.
type cluster struct {
	endpoint
	child      *child
	dir        string
	kubeconfig string
	processes  []measure.Process // kube-apiserver and etcd
}

// startCluster runs a fresh dev cluster, all in memory, and waits until it is ready. flags are
// passed to devcluster. stop removes the cluster's directory.
func startCluster(ctx context.Context, devcluster string, flags ...string) (*cluster, error) {
	memory := "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		memory = ""
	}
	dir, err := os.MkdirTemp(memory, "watchfan-bench-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	state := filepath.Join(dir, "cluster")
	args := append([]string{"up", "--dir", state, "--memory", "--unsafe-no-fsync"}, flags...)
	c.child, err = startChild(dir, "devcluster", nil, devcluster, args...)
	if err == nil {
		err = c.await(ctx, filepath.Join(state, "ready"))
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// await waits for the file that deploy/devcluster writes when it is ready.
func (c *cluster) await(ctx context.Context, path string) error {
	var ready struct {
		Server, CAFile          string
		Kubeconfigs, TokenFiles map[string]string
		Pids                    map[string]int
	}
	if err := c.child.await(ctx, path, &ready); err != nil {
		return err
	}
	var err error
	if c.addr, err = loopback(ready.Server); err != nil {
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
	c.tls, c.token = tlsConfig(c.addr, roots), strings.TrimSpace(string(token))
	c.kubeconfig = ready.Kubeconfigs["admin"]
	for _, name := range []string{"kube-apiserver", "etcd"} {
		c.processes = append(c.processes, measure.Process{Name: name, PID: ready.Pids[name]})
	}
	return nil
}

func (c *cluster) stop() {
	if c.child != nil {
		c.child.stop()
	}
	os.RemoveAll(c.dir)
}

// A proxy is a watchfan in front of a cluster.
type proxy struct {
	child             *child
	plain, tls, admin endpoint
	process           measure.Process
}

// startProxy runs watchfan in front of c, on free ports, with a new certificate and more flags.
func startProxy(ctx context.Context, watchfan string, c *cluster, flags ...string) (*proxy, error) {
	cert, err := makeCertificate(c.dir)
	if err != nil {
		return nil, err
	}
	return startProxyWith(ctx, "watchfan", watchfan, c, cert, flags...)
}

// startProxyWith is startProxy with a certificate and a name for its files.
func startProxyWith(ctx context.Context, name, watchfan string, c *cluster, cert certificate,
	flags ...string) (*proxy, error) {
	child, ports, err := startWatchfan(ctx, c.dir, name, watchfan, c.kubeconfig, cert, flags...)
	if err != nil {
		return nil, err
	}
	p := &proxy{child: child}
	var errs [3]error
	p.plain.addr, errs[0] = netip.ParseAddrPort(ports.Insecure)
	p.tls.addr, errs[1] = netip.ParseAddrPort(ports.Secure)
	p.admin.addr, errs[2] = netip.ParseAddrPort(ports.Admin)
	if err := errors.Join(errs[:]...); err != nil {
		p.child.stop()
		return nil, fmt.Errorf("watchfan: %w", err)
	}
	p.tls.tls, p.tls.token = tlsConfig(p.tls.addr, cert.roots), c.token
	p.process = measure.Process{Name: "watchfan", PID: p.child.cmd.Process.Pid}
	return p, nil
}

// watchfanPorts are the addresses that watchfan listens on; "" is none.
type watchfanPorts struct{ Insecure, Secure, Admin string }

// startWatchfan runs watchfan on free ports and waits until it listens. Later flags replace earlier
// ones. Its files are in dir, under its name.
func startWatchfan(ctx context.Context, dir, name, watchfan, kubeconfig string, cert certificate,
	flags ...string) (*child, watchfanPorts, error) {
	portsFile := filepath.Join(dir, name+"-ports.json")
	os.Remove(portsFile)
	var ports watchfanPorts
	c, err := startChild(dir, name, nil, watchfan, append([]string{"--kubeconfig", kubeconfig,
		"--bind-address=127.0.0.1", "--insecure-port=-1", "--secure-port=-1", "--admin-port=-1", "--ports-file", portsFile,
		"--tls-cert-file", cert.certFile, "--tls-private-key-file", cert.keyFile}, flags...)...)
	if err != nil {
		return nil, ports, err
	}
	if err := c.await(ctx, portsFile, &ports); err != nil {
		c.stop()
		return nil, ports, err
	}
	return c, ports, nil
}

// endpoint returns the port for the watchers of a peer.
func (p *proxy) endpoint(of peer) endpoint {
	if of.tls {
		return p.tls
	}
	return p.plain
}
