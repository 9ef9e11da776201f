package proxy

import (
	"bytes"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/downstream"
)

// A certificate is in use once its key is there too.
func TestCertificateReload(t *testing.T) {
	certFile, keyFile, err := downstream.SelfSigned(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := watchCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	served := func() []byte { return c.Current().Certificate[0] }
	old := served()

	// Half replaced: the old pair stays.
	newCert, newKey, err := downstream.SelfSigned(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	replace := func(from, to string, age time.Duration) {
		content, _ := os.ReadFile(from)
		if err := os.WriteFile(to, content, 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(age)
		os.Chtimes(to, when, when)
	}
	replace(newCert, certFile, time.Second)
	c.Expire()
	if !bytes.Equal(served(), old) {
		t.Error("a certificate without its key is in use")
	}
	replace(newKey, keyFile, time.Second)
	c.Expire()
	if got := served(); got == nil || bytes.Equal(got, old) {
		t.Error("the new certificate is not in use")
	}
}
