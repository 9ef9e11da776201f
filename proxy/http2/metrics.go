package http2

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/exposition"
)

var (
	connections = metrics.NewGauge(exposition.Describe("gauge", "watchfan_http2_connections",
		"Open HTTP/2 connections."), nil)
	brokenConnections = metrics.NewCounter(exposition.Describe("counter", "watchfan_http2_broken_connections_total",
		"HTTP/2 connections that were ended because the client broke the protocol "+
			"or sent too many frames or requests in vain."))
	rejectedStreams = apistatus.Rejections(metrics.GetDefaultSet(), "max_streams")
)

// Connections returns how many HTTP/2 connections are open in the process. It may be called from
// any goroutine.
func Connections() int { return int(connections.Get()) }
