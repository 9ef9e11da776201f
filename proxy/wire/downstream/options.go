package downstream

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/watchfan/watchfan/proxy/base/option"
)

// Options holds the serving certificate and the limits of clients' connections.
type Options struct {
	TLSCertFile, TLSPrivateKeyFile string // both or neither
	CertDir                        string // of the self-signed certificate, which is made without TLSCertFile
	PermitPortSharing              bool   // as kube-apiserver's flag; a fall-back on this host needs it

	// MaxConnections is the limit of both ports together. An idle connection costs 9 KiB, or 38 KiB over
	// TLS, and one with a long head that is never complete 69 or 134 KiB.
	MaxConnections int
	// MaxConnectionAge spreads clients over replicas that have been up for different times.
	MaxConnectionAge time.Duration
}

func (o *Options) AddTo(t *option.Table) {
	t.Group("Serving")
	t.String(&o.TLSCertFile, "tls-cert-file", "", "`FILE` with the secure port's certificate, "+
		"read again when it changes (default a self-signed one in --cert-dir)")
	t.String(&o.TLSPrivateKeyFile, "tls-private-key-file", "",
		"`FILE` with the certificate's private key, read again when it changes")
	t.String(&o.CertDir, "cert-dir", defaultCertDir(), "`DIRECTORY` that keeps the self-signed certificate")

	t.Group("Fallback")
	t.Bool(&o.PermitPortSharing, "permit-port-sharing", false, "let other programs of the same user "+
		"listen on the secure port too (SO_REUSEPORT), as a fall-back")

	t.Group("Connections")
	t.Int(&o.MaxConnections, "max-connections", 100_000, "`CONNECTIONS` that clients may have at once; further ones are "+
		"reset; at most nine tenths of the files that may be open", option.AtLeast(1))
	t.Duration(&o.MaxConnectionAge, "max-connection-age", 0, "`DURATION`, give or take a tenth, after which a connection "+
		"ends with its request or watch; clients then spread over replicas; 0 is never", option.NotNegative)
}

// Check reports incomplete certificate options. secure is whether there is a secure port.
func (o *Options) Check(t *option.Table, secure bool) error {
	switch {
	case (o.TLSCertFile == "") != (o.TLSPrivateKeyFile == ""):
		return fmt.Errorf("%s and %s go together: give both, or neither for a self-signed certificate",
			t.Named("tls-cert-file"), t.Named("tls-private-key-file"))
	case secure && o.TLSCertFile == "" && o.CertDir == "":
		return fmt.Errorf("%s is empty: name a writable directory for the self-signed certificate, give --tls-cert-file, "+
			"or turn the secure port off with --secure-port=0", t.Named("cert-dir"))
	}
	return nil
}

// Files returns the files of the serving certificate. A self-signed one is made if there is none.
func (o *Options) Files() (certFile, keyFile string, err error) {
	if o.TLSCertFile != "" {
		return o.TLSCertFile, o.TLSPrivateKeyFile, nil
	}
	return SelfSigned(o.CertDir)
}

func defaultCertDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "watchfan")
}
