package passthrough

import (
	"strconv"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/exposition"
	"github.com/watchfan/watchfan/proxy/request"
)

var (
	passthroughRequests = exposition.Describe("counter", "watchfan_passthrough_requests_total",
		"Requests passed through, by verb and code. Watches and logs count when they begin.")
	Errors = metrics.NewCounter(exposition.Describe("counter", "watchfan_passthrough_errors_total",
		"Passed-through requests that got no response from kube-apiserver."))
	passthroughBroken = metrics.NewCounter(exposition.Describe("counter", "watchfan_passthrough_broken_responses_total",
		"Responses that kube-apiserver broke off in the middle. The client sees a broken connection for each."))

	// Requests is the sum of watchfan_passthrough_requests_total.
	Requests atomic.Uint64

	inFlight atomic.Int64
	Streams  atomic.Int64
	_        = metrics.NewGauge(exposition.Describe("gauge", "watchfan_passthrough_requests_in_flight",
		"Passed-through requests that are being answered."), func() float64 { return float64(inFlight.Load()) })
	_ = metrics.NewGauge(exposition.Describe("gauge", "watchfan_passthrough_streams",
		"Open watches, logs and upgrades that are passed through."), func() float64 { return float64(Streams.Load()) })

	rejectedLong = apistatus.Rejections(metrics.GetDefaultSet(), "max_long_requests")
	longWaiting  atomic.Int64
	_            = metrics.NewGauge(exposition.Describe("gauge", "watchfan_long_requests_waiting",
		"Requests with selectors of more than 8 KiB that wait for their turn at kube-apiserver."), func() float64 { return float64(longWaiting.Load()) })
)

// countPassthrough counts a request that kube-apiserver has answered with code.
func countPassthrough(asked *request.Request, code int) {
	Requests.Add(1)
	metrics.GetOrCreateCounter(passthroughRequests + `{verb="` + asked.MetricVerb() + `",code="` + strconv.Itoa(code) + `"}`).Inc()
}
