package seed

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/watchfan/watchfan/proxy/base/option"
)

// Options say where the siblings are and how they are trusted, and where caches are kept.
type Options struct {
	// SeedFrom are the siblings: host names, each of which may have several addresses, and
	// HOST:PORT. Empty: no sibling is asked.
	SeedFrom []string
	// SeedCertificateAuthority is a PEM file with the authorities of the siblings' certificates. It
	// is read for each lane. Empty: the siblings' certificate must be the replica's own.
	SeedCertificateAuthority string
	// SeedTLSServerName is the host name that the siblings' certificate must have. Empty: the name
	// in SeedFrom.
	SeedTLSServerName string

	// CacheDir is the directory that keeps what lanes hold, for the next start; see [Disk]. Empty: none
	// does.
	CacheDir string
	// CacheDirSecrets keeps Secrets there too.
	CacheDirSecrets bool
}

// usualPort is the port of a sibling that is named without one. It is the default of --secure-port.
const usualPort = "8443"

// AddTo adds the options to a table.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Siblings")
	t.Strings(&o.SeedFrom, "seed-from", "`HOSTS` of sibling replicas, with a port unless it is "+usualPort+
		", whose caches fill those of this replica when it starts", sibling)
	t.String(&o.SeedCertificateAuthority, "seed-certificate-authority", "",
		"`FILE` with the authorities of the siblings' certificates (default: they must have that of --tls-cert-file)")
	t.String(&o.SeedTLSServerName, "seed-tls-server-name", "",
		"host `NAME` that the siblings' certificates must have (default that in --seed-from)")
	t.String(&o.CacheDir, "cache-dir", "", "`DIRECTORY` that keeps caches, sealed with the serving certificate's private key, "+
		"so that after a restart nothing is listed, if kube-apiserver streams lists; empty is none")
	t.Bool(&o.CacheDirSecrets, "cache-dir-secrets", false, "keep Secrets in --cache-dir too")
}

// sibling is the check of a sibling's name.
func sibling(s string) string {
	host, port := split(s)
	if n, err := strconv.Atoi(port); host == "" || err != nil || n < 1 || n > 65535 {
		return "is no host: give names such as watchfan-replicas.watchfan.svc or 10.0.0.7:8443"
	}
	return ""
}

// split returns the host and the port of a sibling's name.
func split(name string) (host, port string) {
	if host, port, err := net.SplitHostPort(name); err == nil {
		return host, port
	}
	if ip := net.ParseIP(name); ip == nil && strings.Contains(name, ":") {
		return "", ""
	}
	return name, usualPort
}

// Check reports siblings whose certificate could not be verified. certFile is --tls-cert-file.
func (o *Options) Check(t *option.Table, certFile string) error {
	if len(o.SeedFrom) > 0 && o.SeedCertificateAuthority == "" && certFile == "" {
		return fmt.Errorf("%s needs %s, because nothing else says which certificate the siblings have: "+
			"give it, or the same --tls-cert-file to all replicas", t.Named("seed-from"), t.Named("seed-certificate-authority"))
	}
	return nil
}
