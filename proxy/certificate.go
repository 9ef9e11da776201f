package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

// certificateCheckInterval is how often, at most, a handshake looks whether the certificate's files have changed.
const certificateCheckInterval = 10 * time.Second

// certificate is the serving certificate, read again when its files change. A pair that cannot be read, for example
// because only one of the two files has been replaced yet, leaves the old one in use.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	stamp   [2]time.Time // modification times of what current was read from
	checked time.Time
}

// newCertificate reads the certificate, so that a wrong one is an error at the start.
func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log, checked: time.Now()}
	if _, err := c.readLocked(); err != nil {
		return nil, err
	}
	return c, nil
}

// get is a tls.Config's GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) >= certificateCheckInterval {
		c.checked = time.Now()
		changed, err := c.readLocked()
		switch {
		case err != nil:
			c.log.Warn("Reading the changed serving certificate failed", "err", err)
		case changed:
			c.log.Info("Reloaded the serving certificate", "file", c.certFile)
		}
	}
	return c.current, nil
}

// readLocked reads the files if they have changed.
func (c *certificate) readLocked() (changed bool, err error) {
	var stamp [2]time.Time
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return false, err
		}
		stamp[i] = info.ModTime()
	}
	if c.current != nil && stamp == c.stamp {
		return false, nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return false, fmt.Errorf("serving certificate %s: %w", c.certFile, err)
	}
	c.current, c.stamp = &pair, stamp
	return true, nil
}

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
