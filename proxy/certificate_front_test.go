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

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
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

// A client certificate's user is impersonated with watchfan's own credential, in ordinary requests,
// streams and upgrades. The client's own identity headers are not forwarded. Without the
// certificate the same client is anonymous, and watchfan's credential is not used.
func TestCertificatePassthrough(t *testing.T) {
	caFile, jane := clientCertificates(t)
	f := startFront(t, upstreamTLS(t, func(w http.ResponseWriter, r *http.Request) {
		var says []string
		for name, values := range r.Header {
			if strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-") && name != "X-Forwarded-For" ||
				name == "Authorization" {
				says = append(says, fmt.Sprintf("%s=%.20q", name, values))
			}
		}
		slices.Sort(says)
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, strings.Join(says, " "))
	}), func(o *proxy.Options, _ *clientcmdapi.Config) {
		o.SecurePort, o.BindAddress, o.Auth.ClientCAFile = proxy.AnyPort, "127.0.0.1", caFile
		o.Auth.RequestHeaderUsernameHeaders = []string{"X-Custom-User"}
	})
	const lies = "Host: localhost\nX-Remote-User: root\nX-Custom-User: root\nAuthorization: Basic x\n" +
		"impersonate-new: x\nConnection: "
	for _, tc := range []struct{ head, connection string }{
		{"GET /version", "keep-alive"},
		{"GET " + followLog, "X-Nothing"},
		{"GET /api/v1/namespaces/ns/pods/p/exec", "Upgrade\nUpgrade: SPDY/3.1"},
	} {
		for _, certified := range []bool{true, false} {
			want := `Impersonate-New=["x"]` // anonymous: kube-apiserver decides about its headers
			config := &tls.Config{InsecureSkipVerify: true}
			if certified {
				want = `Authorization=["Bearer own-token"] ` + // and so on
					`Impersonate-Extra-Authentication.kubernetes.io%2fcredential-Id=["X509SHA256=`
				config.Certificates = []tls.Certificate{jane}
			}
			conn, err := tls.Dial("tcp", f.secure, config)
			if err != nil {
				t.Fatal(err)
			}
			c := newRawConn(t, conn)
			c.send(tc.head + " HTTP/1.1\n" + lies + tc.connection + "\n\n")
			resp, body := c.response()
			if resp.StatusCode != http.StatusTeapot || !strings.HasPrefix(body, want) ||
				certified &&
					!strings.HasSuffix(body,
						`] Impersonate-Group=["devs" "system:authenticated"] Impersonate-User=["jane"]`) {
				t.Errorf("%s, certified=%v: got %s %s", tc.head, certified, resp.Status, body)
			}
			conn.Close()
		}
	}
}
