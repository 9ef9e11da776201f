package http2

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/exposition"
)

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
