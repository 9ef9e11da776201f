package proxy_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy"
)

// A client that keeps TLS sessions resumes them on later connections, with either version of TLS. It
// is the user of its first handshake's certificate there, and gets a new ticket each time.
func TestResumption(t *testing.T) {
	caFile, jane := clientCertificates(t)
	f := startFront(t, upstreamTLS(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("Impersonate-User"))
	}), func(o *proxy.Options, _ *clientcmdapi.Config) {
		o.SecurePort, o.BindAddress, o.Auth.ClientCAFile = proxy.AnyPort, "127.0.0.1", caFile
	})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, certificates := range [][]tls.Certificate{nil, {jane}} {
			t.Run(fmt.Sprintf("%s/certificates=%d", tls.VersionName(version), len(certificates)), func(t *testing.T) {
				user := strings.Repeat("jane", len(certificates))
				config := &tls.Config{
					InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, Certificates: certificates,
					ClientSessionCache: tls.NewLRUClientSessionCache(1),
				}
				for i := range 3 {
					conn, err := tls.Dial("tcp", f.secure, config)
					if err != nil {
						t.Fatal(err)
					}
					c := newRawConn(t, conn)
					c.send("GET /version HTTP/1.1\nHost: localhost\n\n")
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
