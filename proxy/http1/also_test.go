package http1

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/account"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// Another protocol is given the connection that the listener accepted: it needs the TLS connection
// itself.
func TestAlso(t *testing.T) {
	certificates := httptest.NewTLSServer(nil)
	defer certificates.Close()
	server, err := New(func(*exchange.Exchange) {}, account.New(account.Limits{}), downstream.NewConnections(0, account.New(account.Limits{})), nil, NewMetrics(metrics.NewSet()), proxytest.Guard())
	if err != nil {
		t.Fatal(err)
	}
	given := make(chan net.Conn, 1)
	server.Also("other", func(c net.Conn) { given <- c })
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: []string{"other"}, Certificates: certificates.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	defer func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		server.Shutdown(ctx)
		<-served
	}()
	client, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{NextProtos: []string{"other"}, InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if c, ok := (<-given).(*tls.Conn); !ok {
		t.Errorf("got a %T", c)
	}
	_, _ = io.ReadAll(client)
}
