package auth

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/watchfan/watchfan/proxy/base/files"
)

// clientCAs are the certificate authorities (CAs) of a file, which sign clients' certificates. Nil
// has no CA. Its methods may be called from any goroutine.
type clientCAs struct{ *files.Watcher[*x509.CertPool] }

// newClientCAs reads the file. Without a file it returns nil.
func newClientCAs(file string, log *slog.Logger) (*clientCAs, error) {
	if file == "" {
		return nil, nil
	}
	read := func() (*x509.CertPool, error) {
		pool, err := cert.NewPool(file)
		if err != nil {
			return nil, fmt.Errorf("certificate authorities %s: %w", file, err)
		}
		return pool, nil
	}
	w, err := files.Watch("certificate authorities", read, log, file)
	return &clientCAs{w}, err
}

// verify reports whether the first of the certificates that a client presented is good now for a
// client. The others lead from it to one of the CAs (k8s.io/apiserver
// pkg/authentication/request/x509).
func (cas *clientCAs) verify(certificates []*x509.Certificate) (*verifiedCertificate, bool) {
	if cas == nil {
		return nil, false
	}
	v := &verifiedCertificate{cas: cas, certificates: certificates}
	return v, v.verify()
}

// verifiedCertificate is a client certificate that CAs have verified. The result holds until a
// certificate of its chain expires or the file of CAs changes. It is used by one goroutine at a
// time.
type verifiedCertificate struct {
	cas          *clientCAs
	certificates []*x509.Certificate // as the client presented them, its own one first

	roots   *x509.CertPool // of cas when verify was last called
	expires time.Time      // when the last chain of certificates expires; zero if there is none
}

// current reports whether the last result of verify still holds.
func (v *verifiedCertificate) current(now time.Time) bool {
	return v.cas.Current() == v.roots && now.Before(v.expires)
}

// verify reports whether the certificates are good now.
func (v *verifiedCertificate) verify() bool {
	v.roots, v.expires = v.cas.Current(), time.Time{}
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
