package enrol

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// A bundle has both authorities, each once, and no key. It has addresses only if pods could reach the
// tier with it.
func TestBundle(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	authority := func(name string) *proxytest.Authority {
		a, err := proxytest.NewAuthority(filepath.Join(dir, name), &x509.Certificate{Subject: pkix.Name{CommonName: name}})
		must(err)
		return a
	}
	cluster, tier, other := authority("cluster"), authority("tier"), authority("other")
	between, err := tier.Below(&x509.Certificate{Subject: pkix.Name{CommonName: "between"}})
	must(err)
	certificate := func(a *proxytest.Authority, host string, chain ...byte) []byte {
		c, err := a.Sign(&x509.Certificate{DNSNames: []string{host}})
		must(err)
		return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Leaf.Raw}), chain...)
	}
	key := []byte("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
	cfg := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: cluster.File}}
	f := func(what string, cert, ca []byte, addresses []string, wantCertificates int, wantErr string) {
		t.Helper()
		files := TLSFiles{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "ca.crt")}
		must(os.WriteFile(files.Cert, cert, 0o600))
		must(os.WriteFile(files.CA, ca, 0o600))
		data, err := newBundle(cfg, files, addresses)
		if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: %v, want %q", what, err, wantErr)
		}
		if got := strings.Count(data[caKey], "BEGIN"); got != wantCertificates || strings.Contains(data[caKey], "KEY") {
			t.Errorf("%s: want %d certificates in\n%s", what, wantCertificates, data[caKey])
		}
		want := strings.Join(addresses, ",")
		if err != nil {
			want = ""
		}
		if data[AddressesKey] != want {
			t.Errorf("%s: addresses %q", what, data[AddressesKey])
		}
	}
	ips := []string{"10.0.0.7", "fd00::7"}
	good := certificate(tier, Host)
	f("good", good, tier.PEM(), ips, 2, "")
	f("a key beside them", append(good, key...), append(tier.PEM(), key...), ips, 2, "")
	f("one authority", certificate(cluster, Host), cluster.PEM(), ips, 1, "")
	f("an authority between", certificate(between, Host, between.PEM()...), tier.PEM(), ips, 2, "")
	f("the authority between is missing", certificate(between, Host), tier.PEM(), ips, 2, "signed by unknown authority")
	f("another authority", certificate(other, Host), tier.PEM(), ips, 2, "signed by unknown authority")
	f("another name", certificate(tier, "other.svc"), tier.PEM(), ips, 2, "valid for other.svc, not "+Host)
	f("no certificate", key, tier.PEM(), ips, 2, "tls.crt: data does not contain any valid")
	f("no authority", good, key, ips, 0, "ca.crt has no certificate")
	f("no Service", good, tier.PEM(), nil, 2, "no ClusterIP")
}
