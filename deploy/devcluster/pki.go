package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// Files of Dir made by writePKI. The CA signs the serving certificate, and
// kube-apiserver accepts client certificates it signs.
const (
	caCertFile        = pkiDir + "/ca.crt"
	caKeyFile         = pkiDir + "/ca.key"
	servingCertFile   = pkiDir + "/kube-apiserver.crt"
	servingKeyFile    = pkiDir + "/kube-apiserver.key"
	accountKeyFile    = pkiDir + "/service-account.key"
	accountPublicFile = pkiDir + "/service-account.pub"
)

// certLifetime is long enough for a state directory to be forgotten.
const certLifetime = 10 * 365 * 24 * time.Hour

// writePKI makes the certificates and keys of d, unless they are there.
func writePKI(d Dir) error {
	if exists(d.file(pkiDir)) {
		return nil
	}
	// All or nothing: a run that is interrupted leaves no half of it.
	temp, err := os.MkdirTemp(string(d), "."+pkiDir+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := os.Mkdir(temp+"/"+pkiDir, 0o700); err != nil {
		return err
	}
	if err := newPKI(Dir(temp)); err != nil {
		return fmt.Errorf("create certificates: %w", err)
	}
	return os.Rename(temp+"/"+pkiDir, d.file(pkiDir))
}

func newPKI(d Dir) error {
	ca, caKey, err := newCertificate(d, caCertFile, caKeyFile, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "devcluster-ca"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}, nil, nil)
	if err != nil {
		return err
	}
	_, _, err = newCertificate(d, servingCertFile, servingKeyFile, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)}, // 10.0.0.1 is the service kubernetes
	}, ca, caKey)
	if err != nil {
		return err
	}
	accountKey, err := newKey(d, accountKeyFile)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(accountKey.Public())
	if err != nil {
		return err
	}
	return writePEM(d.file(accountPublicFile), "PUBLIC KEY", public)
}

// newCertificate writes a certificate from template, signed by parent (or by
// itself if parent is nil), and its new key.
func newCertificate(d Dir, certFile, keyFile string, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := newKey(d, keyFile)
	if err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = template.NotBefore.Add(certLifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	return cert, key, writePEM(d.file(certFile), "CERTIFICATE", der)
}

func newKey(d Dir, file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(d.file(file), "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
