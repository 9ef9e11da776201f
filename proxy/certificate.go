package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
)

// certificate is the serving certificate.
type certificate struct{ reloaded[*tls.Certificate] }

// newCertificate reads the certificate, so that a wrong one is an error at the start.
func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{reloaded[*tls.Certificate]{what: "serving certificate", files: []string{certFile, keyFile}, log: log}}
	c.read = func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("serving certificate %s: %w", certFile, err)
		}
		return &pair, nil
	}
	return c, c.load()
}

// get is a tls.Config's GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil }

// selfSigned returns the files of a self-signed certificate for this host in dir. A pair that is already there and valid for
// another day is used as it is, so that clients that were told to trust it can go on.
func selfSigned(dir string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, "watchfan.crt"), filepath.Join(dir, "watchfan.key")
	if pair, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && pair.Leaf != nil &&
		time.Until(pair.Leaf.NotAfter) > 24*time.Hour {
		return certFile, keyFile, nil
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, []string{"localhost"})
	if err != nil {
		return "", "", fmt.Errorf("make a self-signed certificate: %w", err)
	}
	err = errors.Join(
		os.MkdirAll(dir, 0o700),
		writeFile(keyFile, keyPEM, 0o600),
		writeFile(certFile, certPEM, 0o644),
	)
	if err != nil {
		return "", "", fmt.Errorf("store a self-signed certificate (set --cert-dir to a writable directory, or give --tls-cert-file): %w", err)
	}
	return certFile, keyFile, nil
}

// writeFile replaces the file name in one step: readers see the old content or the new.
func writeFile(name string, content []byte, mode os.FileMode) error {
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
