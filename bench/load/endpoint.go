package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// The versions of HTTP, as in results.
const (
	HTTP11 = "h1"
	HTTP20 = "h2" // over TLS alone
)

// An Endpoint is the address of a server and the credentials for it.
type Endpoint struct {
	Addr  netip.AddrPort
	TLS   *tls.Config // nil is plaintext
	Token string      // bearer token; "" is none
}

func (e Endpoint) URL() string {
	if e.TLS != nil {
		return "https://" + e.Addr.String()
	}
	return "http://" + e.Addr.String()
}

// Get sends a GET and returns the body of the answer.
func (e Endpoint) Get(ctx context.Context, path string) ([]byte, error) {
	return e.GetAs(ctx, path, "*/*")
}

// GetAs is Get with an Accept.
func (e Endpoint) GetAs(ctx context.Context, path, accept string) ([]byte, error) {
	client := e.client()
	defer client.CloseIdleConnections()
	return e.send(ctx, client, http.MethodGet, path, "", http.Header{"Accept": {accept}})
}

// send sends one request and returns the body of a 2xx answer. It calls acked when the head of that
// answer has come.
func (e Endpoint) send(ctx context.Context, client *http.Client, method, path, body string, header http.Header,
	acked ...func()) ([]byte, error) {
	resp, err := e.do(ctx, client, method, path, body, header)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	ok := resp.StatusCode/100 == 2
	for _, f := range acked {
		if ok {
			f()
		}
	}
	answer, err := io.ReadAll(resp.Body)
	if err == nil && !ok {
		err = fmt.Errorf("%s: %.200s", resp.Status, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return answer, nil
}

// do sends a request with the endpoint's token.
func (e Endpoint) do(ctx context.Context, client *http.Client, method, path, body string, header http.Header) (
	*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.URL()+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	if e.Token != "" {
		req.Header.Set("Authorization", "Bearer "+e.Token)
	}
	return client.Do(req)
}

// client returns a net/http client for e. It speaks HTTP/2 if the server does.
func (e Endpoint) client() *http.Client {
	transport := &http.Transport{ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100}
	if e.TLS != nil {
		transport.TLSClientConfig = e.TLS.Clone()
		transport.TLSClientConfig.NextProtos = nil // net/http offers h2 and http/1.1
	}
	return &http.Client{Transport: transport}
}

// TlsConfig returns the configuration of an HTTP/1.1 client.
func TlsConfig(addr netip.Addr, roots *x509.CertPool) *tls.Config {
	return &tls.Config{ServerName: addr.String(), RootCAs: roots, NextProtos: []string{"http/1.1"}}
}

// Loopback parses the URL of a server. A server that is not on loopback is an error.
func Loopback(server string) (netip.AddrPort, error) {
	u, err := url.Parse(server)
	if err != nil {
		return netip.AddrPort{}, err
	}
	addr, err := netip.ParseAddrPort(u.Host)
	if err != nil || !addr.Addr().IsLoopback() {
		return netip.AddrPort{}, fmt.Errorf("server %s: not an address on loopback with a port", server)
	}
	return addr, nil
}
