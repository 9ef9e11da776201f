package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"
)

func TestWritePKI(t *testing.T) {
	d := Dir(t.TempDir())
	if err := writePKI(d); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{caKeyFile, servingKeyFile, accountKeyFile} {
		checkPrivate(t, d.file(file))
	}
	serving, err := tls.LoadX509KeyPair(d.file(servingCertFile), d.file(servingKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(d.file(caCertFile))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("no certificate in " + caCertFile)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "kubernetes.default.svc"} {
		if _, err := serving.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}

	if err := writePKI(d); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(d.file(caCertFile)); err != nil || !bytes.Equal(again, ca) {
		t.Error("the second run made another CA")
	}
}
