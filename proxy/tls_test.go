package proxy_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// clientCertificates returns the file of a CA, and a certificate that it has signed for user jane
// of group devs.
func clientCertificates(t *testing.T) (file string, jane tls.Certificate) {
	t.Helper()
	ca, err := proxytest.NewAuthority(filepath.Join(t.TempDir(), "ca.crt"),
		&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Client("jane", []string{"devs"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ca.File, *pair
}

// The secure port serves TLS 1.2 and 1.3 with Go's secure ciphers.
func TestTLS(t *testing.T) {
	f := startFan(t, proxytest.NewServer(t), both)
	var weak []uint16
	for _, c := range tls.InsecureCipherSuites() {
		weak = append(weak, c.ID)
	}
	address := strings.TrimPrefix(f.secure, "https://")
	for name, c := range map[string]struct {
		config *tls.Config
		good   bool
	}{
		"1.3":          {&tls.Config{MinVersion: tls.VersionTLS13}, true},
		"1.2":          {&tls.Config{MaxVersion: tls.VersionTLS12}, true},
		"1.1":          {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		"1.0":          {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, false},
		"weak ciphers": {&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: weak}, false},
		"HTTP/2 only":  {&tls.Config{NextProtos: []string{"h2"}}, true},
		"HTTP/3 only":  {&tls.Config{NextProtos: []string{"h3"}}, false},
	} {
		c.config.InsecureSkipVerify = true
		conn, err := tls.Dial("tcp", address, c.config)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	// Plain HTTP to the TLS port gets no answer that a client could take for one of the API's.
	plain := f.dial("http://" + address)
	plain.send("GET /version HTTP/1.1\nHost: localhost\n\n")
	if got, _ := io.ReadAll(plain); strings.HasPrefix(string(got), "HTTP/1.1 200") {
		t.Errorf("plain HTTP on the secure port: %q", got)
	}
}

// A client that keeps TLS sessions resumes them on later connections, with either version of TLS. It
// is the user of its first handshake's certificate there, and gets a new ticket each time.
func TestResumption(t *testing.T) {
	caFile, jane := clientCertificates(t)
	up := proxytest.NewTLSServer(t)
	up.OnClients(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("Impersonate-User")) })
	f := startFan(t, up, both, func(o *proxy.Options) { o.Auth.ClientCAFile = caFile })
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, certificates := range [][]tls.Certificate{nil, {jane}} {
			t.Run(fmt.Sprintf("%s/certificates=%d", tls.VersionName(version), len(certificates)), func(t *testing.T) {
				user := strings.Repeat("jane", len(certificates))
				config := &tls.Config{
					InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, Certificates: certificates,
					ClientSessionCache: tls.NewLRUClientSessionCache(1),
				}
				for i := range 3 {
					conn, err := tls.Dial("tcp", strings.TrimPrefix(f.secure, "https://"), config)
					if err != nil {
						t.Fatal(err)
					}
					c := newRawConn(t, conn)
					c.send("GET /version HTTP/1.1\nHost: localhost\nUser-Agent: " + proxytest.ClientAgent + "\n\n")
					if resp, body := c.response(); resp.StatusCode != http.StatusOK || body != user {
						t.Errorf("connection %d: got %s, user %q, want %q", i, resp.Status, body, user)
					}
					if resumed := conn.ConnectionState().DidResume; resumed != (i > 0) {
						t.Errorf("connection %d: resumed=%v", i, resumed)
					}
					conn.Close()
				}
			})
		}
	}
}

// A client presents few certificates. What many are parsed to would be kept as long as the connection is open: 2 MiB
// of a stranger's.
func TestManyCertificates(t *testing.T) {
	caFile, jane := clientCertificates(t)
	up := proxytest.NewTLSServer(t)
	up.OnClients(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("Impersonate-User")) })
	f := startFan(t, up, both, func(o *proxy.Options) { o.Auth.ClientCAFile = caFile })
	other, err := proxytest.NewAuthority(filepath.Join(t.TempDir(), "ca.crt"), &x509.Certificate{Subject: pkix.Name{CommonName: "other"}})
	if err != nil {
		t.Fatal(err)
	}
	const long = 40 << 10
	for name, c := range map[string]struct {
		more, size int
		good       bool
	}{
		"four":     {3, 0, true},
		"many":     {100, 0, false},
		"long one": {1, long, false},
	} {
		config := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{jane}}
		presented := &config.Certificates[0].Certificate
		for range c.more {
			more, err := other.Sign(&x509.Certificate{Subject: pkix.Name{CommonName: strings.Repeat("x", c.size)}})
			if err != nil {
				t.Fatal(err)
			}
			*presented = append(slices.Clip(*presented), more.Certificate[0])
		}
		for _, config.MaxVersion = range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			var got []byte
			conn, err := tls.Dial("tcp", strings.TrimPrefix(f.secure, "https://"), config)
			if err == nil {
				fmt.Fprint(conn, "GET /version HTTP/1.1\r\nHost: localhost\r\nUser-Agent: "+proxytest.ClientAgent+"\r\nConnection: close\r\n\r\n")
				got, err = io.ReadAll(conn)
				conn.Close()
			}
			if good := strings.HasSuffix(string(got), "jane"); good != c.good || (err == nil) != c.good {
				t.Errorf("%s, %s: got %q, %v", name, tls.VersionName(config.MaxVersion), got, err)
			}
		}
	}
}
