package proxy

import (
	"strconv"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// How many requests are passed through, and what does kube-apiserver answer? Watches and logs are counted when they begin.
func countPassthrough(code int) {
	metrics.GetOrCreateCounter(`watchfan_passthrough_requests_total{code="` + strconv.Itoa(code) + `"}`).Inc()
}

var (
	// Is kube-apiserver unreachable for what we pass through? Counts requests that got no response from it.
	passthroughErrors = metrics.NewCounter(`watchfan_passthrough_errors_total`)

	// Does kube-apiserver break responses off in the middle? Clients see a broken connection for each.
	passthroughBroken = metrics.NewCounter(`watchfan_passthrough_broken_responses_total`)

	// How many passed-through requests are being answered now, and how many of them are watches, logs or upgrades?
	passthroughInFlight atomic.Int64
	passthroughStreams  atomic.Int64
	_                   = metrics.NewGauge(`watchfan_passthrough_requests_in_flight`, func() float64 { return float64(passthroughInFlight.Load()) })
	_                   = metrics.NewGauge(`watchfan_passthrough_streams`, func() float64 { return float64(passthroughStreams.Load()) })

	// Are clients turned away before they are anybody? By reason.
	rejectedUnauthorized = metrics.NewCounter(`watchfan_rejected_requests_total{reason="unauthorized"}`)
	rejectedForeignHost  = metrics.NewCounter(`watchfan_rejected_requests_total{reason="foreign_host"}`)
	rejectedMalformed    = metrics.NewCounter(`watchfan_rejected_requests_total{reason="malformed"}`)

	// Did a handler panic? Each one is a bug of ours, and logged.
	handlerPanics = metrics.NewCounter(`watchfan_handler_panics_total`)
)
