package downstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestSelfSignedCertificate(t *testing.T) {
	dir := t.TempDir() + "/new"
	certFile, keyFile, err := SelfSigned(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(keyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("private key: got mode %v, %v, want 0600", info.Mode(), err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
		if err := pair.Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	before, _ := os.ReadFile(certFile)
	if _, _, err := SelfSigned(dir); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(certFile); !bytes.Equal(before, after) {
		t.Error("a valid certificate was replaced")
	}
	if err := os.WriteFile(certFile, []byte("broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := SelfSigned(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		t.Errorf("a broken certificate was kept: %v", err)
	}
}

func TestCertificateReload(t *testing.T) { synctest.Test(t, testCertificateReload) }

func testCertificateReload(t *testing.T) {
	certFile, keyFile, err := SelfSigned(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := WatchCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	old := c.Current().Certificate[0]

	// Half replaced: the old pair stays.
	newCert, newKey, err := SelfSigned(t.TempDir())
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
	time.Sleep(10 * time.Second) // package files looks at a file that often
	if !bytes.Equal(c.Current().Certificate[0], old) {
		t.Error("a certificate without its key is in use")
	}
	replace(newKey, keyFile, time.Second)
	time.Sleep(10 * time.Second)
	if got := c.Current().Certificate[0]; got == nil || bytes.Equal(got, old) {
		t.Error("the new certificate is not in use")
	}
}

// A self-signed certificate is replaced before the alert about its end: nobody has to do anything.
func TestRenewedBeforeAlert(t *testing.T) {
	rules, err := os.ReadFile("../../../deploy/alerts/watchfan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`_expiry_timestamp_seconds\{.*\} - time\(\) < (\d+) \* 86400\n`).FindSubmatch(rules)
	if found == nil {
		t.Fatal("no alert")
	}
	if days, _ := strconv.Atoi(string(found[1])); renewBefore <= time.Duration(days)*24*time.Hour+renewEvery {
		t.Errorf("the alert comes %d days before the end, and the new certificate %s", days, renewBefore)
	}
}

// The certificate is replaced while the server runs, some days before its end, and not before.
func TestKeepSelfSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		certFile, _, err := SelfSigned(dir)
		if err != nil {
			t.Fatal(err)
		}
		read := func() string {
			content, err := os.ReadFile(certFile)
			if err != nil {
				t.Fatal(err)
			}
			return string(content)
		}
		first := read()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); KeepSelfSigned(ctx, dir, slog.New(slog.DiscardHandler)) }()
		time.Sleep(certificateAge - renewBefore - 3*time.Hour) // it began an hour ago
		if read() != first {
			t.Error("replaced too early")
		}
		time.Sleep(4 * time.Hour)
		if read() == first {
			t.Error("not replaced")
		}
		cancel()
		<-done
	})
}
