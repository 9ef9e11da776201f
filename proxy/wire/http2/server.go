package http2

import (
	"crypto/tls"
	"net"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// Protocol is the name of HTTP/2 in TLS (RFC 9113, section 3.2).
const Protocol = "h2"

var (
	openConnections   = exposition.Describe("gauge", "watchfan_http2_connections", "Open HTTP/2 connections.")
	brokenConnections = exposition.Describe("counter", "watchfan_http2_broken_connections_total",
		"HTTP/2 connections that were ended because the client broke the protocol "+
			"or sent too many frames or requests in vain.")
)

// Server serves HTTP/2 connections. Its methods may be called from any goroutine.
type Server struct {
	// Immutable.
	downstream.Base
	maxStreams int

	connections *metrics.Gauge
	broken      *metrics.Counter // connections
	tooMany     *metrics.Counter // requests beyond the limit of streams
}

// New returns a server that answers each request on a goroutine of its own. It counts in set, and
// requests beyond the limit of streams in tooMany.
func New(base downstream.Base, opts *Options, set *metrics.Set, tooMany *metrics.Counter) *Server {
	return &Server{
		Base: base, maxStreams: opts.HTTP2MaxStreamsPerConnection,
		connections: set.NewGauge(openConnections, nil), broken: set.NewCounter(brokenConnections), tooMany: tooMany,
	}
}

// Serve serves a connection as the listener accepted it, after its TLS handshake. It returns when
// the connection has ended and nothing works for it any more. The caller closes the connection.
func (s *Server) Serve(c net.Conn) {
	defer s.Guard.Caught("HTTP/2 connection", func() { _ = c.Close() })
	s.connections.Inc()
	defer s.connections.Dec()
	newConn(s, c.(*tls.Conn)).serve()
}

// Connections returns how many connections are open.
func (s *Server) Connections() int { return int(s.connections.Get()) }
