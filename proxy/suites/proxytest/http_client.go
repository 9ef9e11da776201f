package proxytest

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"sync"
)

// ServerCertificate returns httptest's certificate, for example.com and this host.
var ServerCertificate = sync.OnceValue(func() tls.Certificate {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return server.TLS.Certificates[0]
})

// HTTPClient returns a client over transport that changes nothing on the way: it speaks HTTP/1.1,
// asks for no compression by itself and follows no redirect.
func HTTPClient(transport *http.Transport) *http.Client {
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	return faithful(transport)
}

// HTTP2Client is HTTPClient for HTTP/2. It needs TLS, and a server that does not offer HTTP/2 is an
// error. Requests share connections: another one is opened when the server's limit of streams is
// reached.
func HTTP2Client(transport *http.Transport) *http.Client {
	transport.TLSClientConfig = transport.TLSClientConfig.Clone()
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP2(true)
	return faithful(transport)
}

func faithful(transport *http.Transport) *http.Client {
	transport.DisableCompression = true
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
