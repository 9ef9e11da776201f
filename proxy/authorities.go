package proxy

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

// authorities are the certificates of a file that sign clients' certificates, read again when the file changes. A file that
// cannot be read leaves the old ones in use. A nil authorities signs nobody's. Its methods may be called from any goroutine.
type authorities struct {
	file string
	log  *slog.Logger

	mu      sync.Mutex
	pool    *x509.CertPool // immutable
	stamp   time.Time      // modification time of what pool was read from
	checked time.Time
}

// newAuthorities reads the file, so that a wrong one is an error at the start. Without a file it returns nil.
func newAuthorities(file string, log *slog.Logger) (*authorities, error) {
	if file == "" {
		return nil, nil
	}
	a := &authorities{file: file, log: log, checked: time.Now()}
	if _, err := a.readLocked(); err != nil {
		return nil, err
	}
	return a, nil
}

// readLocked reads the file if it has changed.
func (a *authorities) readLocked() (changed bool, err error) {
	info, err := os.Stat(a.file)
	if err != nil {
		return false, err
	}
	if a.pool != nil && info.ModTime().Equal(a.stamp) {
		return false, nil
	}
	pool, err := cert.NewPool(a.file)
	if err != nil {
		return false, fmt.Errorf("certificate authorities %s: %w", a.file, err)
	}
	a.pool, a.stamp = pool, info.ModTime()
	return true, nil
}

// current returns the certificates, at most certificateCheckInterval old.
func (a *authorities) current() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.checked) >= certificateCheckInterval {
		a.checked = time.Now()
		changed, err := a.readLocked()
		switch {
		case err != nil:
			a.log.Warn("Reading the changed certificate authorities failed", "err", err)
		case changed:
			a.log.Info("Reloaded the certificate authorities", "file", a.file)
		}
	}
	return a.pool
}

// verify reports whether the first of the certificates that a client presented is good now for a client, and until when.
// The others lead from it to one of a's (k8s.io/apiserver pkg/authentication/request/x509).
func (a *authorities) verify(certificates []*x509.Certificate) (expires time.Time, ok bool) {
	if a == nil {
		return time.Time{}, false
	}
	opts := x509.VerifyOptions{
		Roots:         a.current(),
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range certificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := certificates[0].Verify(opts); err != nil {
		return time.Time{}, false
	}
	return certificates[0].NotAfter, true
}
