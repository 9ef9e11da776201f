package http2

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// Protocol is the name of HTTP/2 in TLS (RFC 9113, section 3.2).
const Protocol = "h2"

// Server serves HTTP/2 connections. Its methods may be called from any goroutine.
type Server struct {
	// Immutable.
	downstream.Base
	metrics    *Metrics
	maxStreams int
	stall      time.Duration // downstream.StallTimeout, except in tests
	receive    int64         // a connection's window for bodies without owner: strangersWindow, except in tests
}

// New returns a server that answers each request on a goroutine of its own.
func New(base downstream.Base, opts *Options, m *Metrics) *Server {
	return &Server{
		Base: base, metrics: m,
		maxStreams: opts.HTTP2MaxStreamsPerConnection, stall: downstream.StallTimeout, receive: strangersWindow,
	}
}

// Serve serves a connection as the listener accepted it, after its TLS handshake. It returns when
// the connection has ended and nothing works for it any more. The caller closes the connection.
func (s *Server) Serve(c net.Conn) {
	defer s.Guard.Caught("HTTP/2 connection", func() { _ = c.Close() })
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
