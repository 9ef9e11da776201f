package proxytest

import (
	"crypto/tls"
	"net/http"
)

// HTTPClient returns a client over transport that changes nothing on the way: it speaks HTTP/1.1,
// asks for no compression by itself and follows no redirect.
func HTTPClient(transport *http.Transport) *http.Client {
	transport.TLSNextProto = make(map[string]func(string, *tls.Conn) http.RoundTripper)
	transport.DisableCompression = true
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
