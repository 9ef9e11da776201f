package proxytest

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestClientProtocols: each client speaks its version of HTTP to a server that offers both, and no
// other.
func TestClientProtocols(t *testing.T) {
	start := func(h2 bool) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Proto+r.Header.Get("Accept-Encoding"))
		}))
		server.EnableHTTP2 = h2
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL
	}
	both := start(true)
	transport := func() *http.Transport {
		return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	}
	get := func(c *http.Client, url string) (string, error) {
		defer c.CloseIdleConnections()
		resp, err := c.Get(url)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	for want, client := range map[string]*http.Client{"HTTP/1.1": HTTPClient(transport()), "HTTP/2.0": HTTP2Client(transport())} {
		if got, err := get(client, both); got != want || err != nil {
			t.Errorf("got %q, %v want %q", got, err, want)
		}
	}
	if got, err := get(HTTP2Client(transport()), start(false)); err == nil {
		t.Errorf("HTTP/2 at a server without it: %q", got)
	}
}
