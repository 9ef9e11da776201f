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

// Server serves HTTP/2 connections. Its methods may be called from any goroutine.
type Server struct {
	// Immutable.
	downstream.Base
	metrics    *Metrics
	maxStreams int
}

// New returns a server that answers each request on a goroutine of its own.
func New(base downstream.Base, opts *Options, m *Metrics) *Server {
	return &Server{Base: base, metrics: m, maxStreams: opts.HTTP2MaxStreamsPerConnection}
}

// Serve serves a connection as the listener accepted it, after its TLS handshake. It returns when
// the connection has ended and nothing works for it any more. The caller closes the connection.
func (s *Server) Serve(c net.Conn) {
	defer s.Guard.Caught("HTTP/2 connection", func() { _ = c.Close() })
	s.metrics.connections.Inc()
	defer s.metrics.connections.Dec()
	newConn(s, c.(*tls.Conn)).serve()
}

var (
	openConnections = exposition.Describe("gauge", "watchfan_http2_connections",
		"Open HTTP/2 connections.")
	brokenConnections = exposition.Describe("counter", "watchfan_http2_broken_connections_total",
		"HTTP/2 connections that were ended because the client broke the protocol "+
			"or sent too many frames or requests in vain.")
)

// Metrics are the metrics of a Server.
type Metrics struct {
	connections *metrics.Gauge
	broken      *metrics.Counter // connections
	streams     *metrics.Counter // rejected requests
}

// NewMetrics adds the metrics to a server's set. streams counts requests beyond the limit of streams.
func NewMetrics(set *metrics.Set, streams *metrics.Counter) *Metrics {
	return &Metrics{connections: set.NewGauge(openConnections, nil), broken: set.NewCounter(brokenConnections), streams: streams}
}

// Connections returns how many connections are open. It may be called from any goroutine.
func (s *Server) Connections() int { return int(s.metrics.connections.Get()) }
