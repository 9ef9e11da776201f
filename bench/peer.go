//go:build linux

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// A peer is a server to compare: kube-apiserver itself, a proxy in front of it, or the floor.
type peer struct {
	name string // as in results
	tls  bool
}

func (p peer) String() string {
	if p.tls {
		return p.name + "/tls"
	}
	return p.name + "/plain"
}

// The peers that this program can start.
var (
	direct       = peer{"kube-apiserver", true}
	watchfanTLS  = peer{"watchfan", true}
	watchfanBare = peer{"watchfan", false}
	floorTLS     = peer{"writev", true} // floor.go; it has no cluster, and its turn comes after the others
	floorBare    = peer{"writev", false}
	peers        = []peer{direct, watchfanTLS, watchfanBare}
)

// protocols returns the protocols that a peer's watchers may speak.
func (p peer) protocols() []protocol {
	if p.tls {
		return []protocol{http11, http20}
	}
	return []protocol{http11}
}

// An endpoint is the address of a server and the credentials for it.
type endpoint struct {
	addr  netip.AddrPort
	tls   *tls.Config // nil is plaintext
	token string      // bearer token; "" is none
}

func (e endpoint) url() string {
	if e.tls != nil {
		return "https://" + e.addr.String()
	}
	return "http://" + e.addr.String()
}

// get sends a GET and returns the body of the answer, which must be 200.
func (e endpoint) get(ctx context.Context, path string) ([]byte, error) {
	return e.getAs(ctx, path, "")
}

// getAs is get with an Accept, unless that is "".
func (e endpoint) getAs(ctx context.Context, path, accept string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", e.url()+path, nil)
	if err != nil {
		return nil, err
	}
	if e.token != "" {
		req.Header.Set("Authorization", "Bearer "+e.token)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	client := e.client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s: %.200s", path, resp.Status, body)
	}
	return body, err
}

// client returns a net/http client for e. It speaks HTTP/2 if the server does.
func (e endpoint) client() *http.Client {
	transport := &http.Transport{ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100}
	if e.tls != nil {
		transport.TLSClientConfig = e.tls.Clone()
		transport.TLSClientConfig.NextProtos = nil // net/http offers h2 and http/1.1
	}
	return &http.Client{Transport: transport}
}

// tlsConfig returns the configuration of an HTTP/1.1 client.
func tlsConfig(addr netip.AddrPort, roots *x509.CertPool) *tls.Config {
	return &tls.Config{ServerName: addr.Addr().String(), RootCAs: roots, NextProtos: []string{"http/1.1"}}
}

// loopback parses the URL of a server. A server that is not on loopback is an error.
func loopback(server string) (netip.AddrPort, error) {
	u, err := url.Parse(server)
	if err != nil {
		return netip.AddrPort{}, err
	}
	addr, err := netip.ParseAddrPort(u.Host)
	if err != nil || !addr.Addr().IsLoopback() {
		return netip.AddrPort{}, fmt.Errorf("server %s: not an address on loopback with a port", server)
	}
	return addr, nil
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
