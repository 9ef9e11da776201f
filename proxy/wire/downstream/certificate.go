package downstream

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/watchfan/watchfan/proxy/base/files"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// WatchCertificate reads the serving certificate. A wrong one is an error at the start.
func WatchCertificate(certFile, keyFile string, log *slog.Logger) (*files.Watcher[*tls.Certificate], error) {
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("serving certificate %s: %w", certFile, err)
		}
		return &pair, nil
	}
	return files.Watch("serving certificate", read, log, certFile, keyFile)
}

const (
	// renewBefore is how long before its end a self-signed certificate is replaced: before WatchfanCertificateExpires
	// would ask somebody to.
	renewBefore = 8 * 24 * time.Hour
	renewEvery  = time.Hour
)

// KeepSelfSigned replaces the self-signed certificate in dir in time, until ctx ends. Open connections
// go on. [WatchCertificate] reads the new files at the next handshake.
func KeepSelfSigned(ctx context.Context, dir string, log *slog.Logger) {
	for exchange.Sleep(ctx, renewEvery) {
		if _, _, err := SelfSigned(dir); err != nil {
			log.Error("Could not renew the self-signed certificate", "err", err, "retryIn", renewEvery)
		}
	}
}

// SelfSigned returns the files of a self-signed certificate for this host in dir. An existing pair
// that is valid for some days is kept: clients that trust it continue to work.
func SelfSigned(dir string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, "watchfan.crt"), filepath.Join(dir, "watchfan.key")
	if pair, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && pair.Leaf != nil &&
		time.Until(pair.Leaf.NotAfter) > renewBefore {
		return certFile, keyFile, nil
	}
	host, _ := os.Hostname()
	certPEM, keyPEM, err := MakeCertificate(cmp.Or(host, "localhost"))
	if err != nil {
		return "", "", fmt.Errorf("make a self-signed certificate: %w", err)
	}
	err = errors.Join(
		os.MkdirAll(dir, 0o700),
		WriteFile(keyFile, keyPEM, 0o600),
		WriteFile(certFile, certPEM, 0o644),
	)
	if err != nil {
		return "", "", fmt.Errorf("store a self-signed certificate (set --cert-dir to a writable directory, or give --tls-cert-file): %w", err)
	}
	return certFile, keyFile, nil
}

// certificateAge is the lifetime of a self-signed certificate.
const certificateAge = 365 * 24 * time.Hour

// MakeCertificate makes a certificate for host and the loopback addresses. The certificate of the
// signing authority follows; the authority's key is discarded. The keys are P-256. With the RSA
// keys of cert.GenerateSelfSignedCertKey a handshake takes 1.4 ms instead of 0.6 ms, and handshakes
// are most of the work in a storm of connections.
func MakeCertificate(host string) (certPEM, keyPEM []byte, err error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	from := time.Now().Add(-time.Hour) // for clients whose clock is behind
	authority, err := cert.NewSelfSignedCACert(cert.Config{CommonName: host + "-ca", NotBefore: from}, authorityKey)
	if err != nil {
		return nil, nil, err
	}
	leaf := &x509.Certificate{
		Subject:     pkix.Name{CommonName: host},
		NotBefore:   from,
		NotAfter:    from.Add(certificateAge),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		DNSNames:    []string{"localhost"},
	}
	if ip := net.ParseIP(host); ip != nil {
		leaf.IPAddresses = append(leaf.IPAddresses, ip)
	} else if host != "localhost" {
		leaf.DNSNames = append(leaf.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, nil, err
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, err
	}
	certPEM, err = cert.EncodeCertificates(&x509.Certificate{Raw: der}, authority)
	return certPEM, keyPEM, err
}

// WriteFile replaces the file name in one step: readers see the old content or the new content.
func WriteFile(name string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
