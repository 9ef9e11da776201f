package http2

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/watchfan/watchfan/proxy/account"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/exchange"
)

// Protocol is the name of HTTP/2 in TLS (RFC 9113, section 3.2).
const Protocol = "h2"

// Server serves HTTP/2 connections. Its methods may be called from any goroutine.
type Server struct {
	// Immutable.
	handler    func(*exchange.Exchange)
	ledger     *account.Ledger
	conns      *downstream.Connections
	poller     *downstream.Poller
	metrics    *Metrics
	guard      *exchange.Guard
	maxStreams int
	stall      time.Duration // downstream.StallTimeout, except in tests
	receive    int64         // a connection's window for bodies without owner: strangersWindow, except in tests
}

// New returns a server that calls handler for each request, on a goroutine of its own. What it holds
// for clients counts in ledger.
func New(
	handler func(*exchange.Exchange), opts *Options, ledger *account.Ledger, conns *downstream.Connections,
	poller *downstream.Poller, m *Metrics, guard *exchange.Guard,
) *Server {
	return &Server{
		handler: handler, ledger: ledger, conns: conns, poller: poller, metrics: m, guard: guard,
		maxStreams: opts.HTTP2MaxStreamsPerConnection, stall: downstream.StallTimeout, receive: strangersWindow,
	}
}

// Serve serves a connection as the listener accepted it, after its TLS handshake. It returns when
// the connection has ended and nothing works for it any more. The caller closes the connection.
func (s *Server) Serve(c net.Conn) {
	defer s.guard.Caught("HTTP/2 connection", func() { _ = c.Close() })
	t, ok := c.(*tls.Conn)
	if !ok {
		return
	}
	conn, err := newConn(s, t)
	if err != nil {
		return
	}
	s.metrics.connections.Inc()
	defer s.metrics.connections.Dec()
	conn.serve()
}
