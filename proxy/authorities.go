package proxy

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/util/cert"
)

// authorities are the certificates of a file that sign clients' certificates. A nil authorities signs nobody's. Its methods may be called
// from any goroutine.
type authorities struct{ reloaded[*x509.CertPool] }

// newAuthorities reads the file, so that a wrong one is an error at the start. Without a file it returns nil.
func newAuthorities(file string, log *slog.Logger) (*authorities, error) {
	if file == "" {
		return nil, nil
	}
	a := &authorities{reloaded[*x509.CertPool]{what: "certificate authorities", files: []string{file}, log: log}}
	a.read = func() (*x509.CertPool, error) {
		pool, err := cert.NewPool(file)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities %s: %w", file, err)
		}
		return pool, nil
	}
	return a, a.load()
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
