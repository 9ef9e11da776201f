package proxytest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	File string // its own certificate, in PEM

	cert *x509.Certificate
	key  any
}

// NewAuthority makes one, with the validity of template, and writes its certificate to file.
func NewAuthority(file string, template *x509.Certificate) (*Authority, error) {
	a := &Authority{File: file}
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	pair, err := a.Sign(template)
	if err != nil {
		return nil, err
	}
	a.cert, a.key = pair.Leaf, pair.PrivateKey
	return a, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw}), 0o600)
}

// Authority returns the one whose client certificates c takes.
func (c *Cluster) Authority() (*Authority, error) {
	file := filepath.Join(c.Dir, "pki", "ca.crt")
	pair, err := tls.LoadX509KeyPair(file, filepath.Join(c.Dir, "pki", "ca.key"))
	if err != nil {
		return nil, err
	}
	return &Authority{file, pair.Leaf, pair.PrivateKey}, nil
}

// Sign returns a certificate with a new key. It is valid for an hour unless template says otherwise.
func (a *Authority) Sign(template *x509.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	parent, parentKey := a.cert, a.key
	if parent == nil {
		parent, parentKey = template, key
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<60))
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Client returns a user's certificate, valid for a time from now; 0 is an hour.
func (a *Authority) Client(name string, groups []string, validFor time.Duration) (*tls.Certificate, error) {
	now := time.Now()
	return a.Sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(cmp.Or(validFor, time.Hour))})
}
