//go:build linux

package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

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
	cert       *certificate      // of each watchfan in front; nil before the first
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
	c.Child, err = startChild(PriorityNormal, dir, "devcluster", nil, devcluster, args...)
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

// StartProxy runs watchfan in front of c, on free ports, with a certificate of c's, and waits until it
// listens. Later flags replace earlier ones.
func StartProxy(ctx context.Context, watchfan string, c *Cluster, flags ...string) (*Proxy, error) {
	if c.cert == nil {
		cert, err := makeCertificate(c.dir)
		if err != nil {
			return nil, err
		}
		c.cert = &cert
	}
	cert, portsFile := c.cert, filepath.Join(c.dir, "watchfan-ports.json")
	os.Remove(portsFile)
	child, err := startChild(PriorityNormal, c.dir, "watchfan", nil, watchfan, append([]string{"--kubeconfig", c.kubeconfig,
		"--bind-address=127.0.0.1", "--insecure-port=-1", "--secure-port=-1", "--admin-port=-1", "--ports-file", portsFile,
		"--tls-cert-file", cert.certFile, "--tls-private-key-file", cert.keyFile}, flags...)...)
	if err != nil {
		return nil, err
	}
	var ports struct{ Insecure, Secure, Admin netip.AddrPort }
	if err := child.Await(ctx, portsFile, &ports); err != nil {
		child.Stop()
		return nil, fmt.Errorf("watchfan: %w", err)
	}
	p := &Proxy{Child: child, Process: measure.Process{Name: "watchfan", PID: child.Cmd.Process.Pid}}
	p.plain.Addr, p.TLS.Addr, p.Admin.Addr = ports.Insecure, ports.Secure, ports.Admin
	p.TLS.TLS, p.TLS.Token = load.TlsConfig(p.TLS.Addr, cert.roots), c.Token
	return p, nil
}

// endpoint returns the port for the watchers of a peer.
func (p *Proxy) endpoint(of report.Peer) load.Endpoint {
	if of.TLS {
		return p.TLS
	}
	return p.plain
}

// A certificate is the certificate of a server that this program starts.
type certificate struct {
	certFile, keyFile string
	roots             *x509.CertPool // that trust it
}

// makeCertificate writes a self-signed certificate for loopback.
func makeCertificate(dir string) (certificate, error) {
	c := certificate{filepath.Join(dir, "watchfan.crt"), filepath.Join(dir, "watchfan.key"), x509.NewCertPool()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "watchfan bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return c, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	c.roots.AppendCertsFromPEM(certPEM)
	return c, errors.Join(os.WriteFile(c.certFile, certPEM, 0o600), os.WriteFile(c.keyFile, keyPEM, 0o600))
}
