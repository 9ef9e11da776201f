package auth

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
)

// authorities are the certificates of a file that sign clients' certificates. A nil authorities
// signs nobody's. Its methods may be called from any goroutine.
type authorities struct{ Reloaded[*x509.CertPool] }

// newAuthorities reads the file, so that a wrong one is an error at the start. Without a file it
// returns nil.
func newAuthorities(file string, log *slog.Logger) (*authorities, error) {
	if file == "" {
		return nil, nil
	}
	a := &authorities{Reloaded[*x509.CertPool]{What: "certificate authorities", Files: []string{file}, Log: log}}
	a.Read = func() (*x509.CertPool, error) {
		pool, err := cert.NewPool(file)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities %s: %w", file, err)
		}
		return pool, nil
	}
	return a, a.Load()
}

// verify reports whether the first of the certificates that a client presented is good now for a
// client. The others lead from it to one of a's (k8s.io/apiserver pkg/authentication/request/x509).
func (a *authorities) verify(certificates []*x509.Certificate) (*voucher, bool) {
	if a == nil {
		return nil, false
	}
	v := &voucher{by: a, certificates: certificates}
	return v, v.renew()
}

// voucher is the word of authorities for a client. It is good until the certificates that it is
// based on expire, or the authorities' file changes; then renew says whether it still holds. It is
// used by one goroutine at a time.
type voucher struct {
	by           *authorities
	certificates []*x509.Certificate // the client's own one first

	roots   *x509.CertPool // by's when renew was last called
	expires time.Time
}

// good reports whether the voucher need not be renewed.
func (v *voucher) good(now time.Time) bool {
	return v.by.Current() == v.roots && now.Before(v.expires)
}

// renew reports whether the certificates are good now.
func (v *voucher) renew() bool {
	v.roots, v.expires = v.by.Current(), time.Time{}
	opts := x509.VerifyOptions{
		Roots:         v.roots,
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range v.certificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	chains, err := v.certificates[0].Verify(opts)
	if err != nil {
		return false
	}
	for _, chain := range chains {
		first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if first.NotAfter.After(v.expires) {
			v.expires = first.NotAfter
		}
	}
	return true
}
