package http1

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/watchfan/watchfan/proxy/account"
	"github.com/watchfan/watchfan/proxy/exchange"
)

// Another protocol is given the connection that the listener accepted: it needs the TLS connection
// itself.
func TestAlso(t *testing.T) {
	server := newServer(t, func(*exchange.Exchange) {}, account.New(account.Limits{}), 0)
	given := make(chan net.Conn, 1)
	server.Also("other", func(c net.Conn) { given <- c })
	client := serve(t, server, &tls.Config{NextProtos: []string{"other"}})()
	if err := client.(*tls.Conn).Handshake(); err != nil {
		t.Fatal(err)
	}
	if c, ok := (<-given).(*tls.Conn); !ok {
		t.Errorf("got a %T", c)
	}
	_, _ = io.ReadAll(client)
}
