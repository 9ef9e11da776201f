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
	File string // its own certificate, in PEM; "" for one from Below

	certificate *tls.Certificate
}

// NewAuthority returns an authority with its own certificate made from template, and writes the
// certificate to file.
func NewAuthority(file string, template *x509.Certificate) (*Authority, error) {
	a, err := new(Authority).Below(template)
	if err != nil {
		return nil, err
	}
	a.File = file
	return a, os.WriteFile(file, a.PEM(), 0o600)
}

// Authority returns the authority whose client certificates c accepts.
func (c *Cluster) Authority() (*Authority, error) {
	file := filepath.Join(c.Dir, "pki", "ca.crt")
	pair, err := tls.LoadX509KeyPair(file, filepath.Join(c.Dir, "pki", "ca.key"))
	return &Authority{file, &pair}, err
}

// Below returns an authority whose certificate a signs.
func (a *Authority) Below(template *x509.Certificate) (*Authority, error) {
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	certificate, err := a.Sign(template)
	return &Authority{certificate: certificate}, err
}

// Certificate returns the authority's own certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.certificate.Leaf }

// PEM returns the authority's own certificate as a file has it.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
}

// Sign returns a certificate with a new key. It is valid for an hour unless template says
// otherwise.
func (a *Authority) Sign(template *x509.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<60))
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	}
	parent, parentKey := template, any(key) // signed by itself
	if a.certificate != nil {
		parent, parentKey = a.certificate.Leaf, a.certificate.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// Client returns a user's certificate, valid for a time from now; 0 is an hour.
func (a *Authority) Client(name string, groups []string, validFor time.Duration) (*tls.Certificate, error) {
	now := time.Now()
	return a.Sign(&x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		NotBefore:   now.Add(-time.Minute),
		NotAfter:    now.Add(cmp.Or(validFor, time.Hour)),
	})
}
