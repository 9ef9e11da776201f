package passthrough

import (
	"strconv"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/request"
)

var (
	passthroughRequests = exposition.Describe("counter", "watchfan_passthrough_requests_total",
		"Requests passed through, by verb and code. Watches and logs count when they begin.")
	passthroughErrors = exposition.Describe("counter", "watchfan_passthrough_errors_total",
		"Passed-through requests that got no response from kube-apiserver.")
	passthroughBroken = exposition.Describe("counter", "watchfan_passthrough_broken_responses_total",
		"Responses that kube-apiserver broke off in the middle. The client sees a broken connection for each.")
	passthroughWatches = exposition.Describe("counter", "watchfan_passthrough_watches_total",
		"Watches passed through and not served from a cache, by reason. A watch counts when it begins.")
	passthroughInFlight = exposition.Describe("gauge", "watchfan_passthrough_requests_in_flight",
		"Passed-through requests that are being answered.")
	passthroughStreams = exposition.Describe("gauge", "watchfan_passthrough_streams",
		"Open watches, logs and upgrades that are passed through.")
	longRequestsWaiting = exposition.Describe("gauge", "watchfan_long_requests_waiting",
		"Requests with selectors of more than 8 KiB that wait for their turn at kube-apiserver.")
)

// Metrics are the metrics of a Forwarder.
type Metrics struct {
	set      *metrics.Set  // has the requests, by verb and code
	requests atomic.Uint64 // the sum of these

	errors, broken    *metrics.Counter
	inFlight, streams *metrics.Gauge
	longWaiting       *metrics.Gauge
	watches           map[request.Reason]*metrics.Counter

	// Of rejected requests.
	unauthorized, held, long, strangers, endless *metrics.Counter
}

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	m := &Metrics{
		set:          set,
		errors:       set.NewCounter(passthroughErrors),
		broken:       set.NewCounter(passthroughBroken),
		inFlight:     set.NewGauge(passthroughInFlight, nil),
		streams:      set.NewGauge(passthroughStreams, nil),
		longWaiting:  set.NewGauge(longRequestsWaiting, nil),
		watches:      make(map[request.Reason]*metrics.Counter),
		unauthorized: apistatus.Rejections(set, "unauthorized"),
		held:         apistatus.Rejections(set, "held_memory"),
		long:         apistatus.Rejections(set, "max_long_requests"),
		strangers:    apistatus.Rejections(set, "strangers"),
		endless:      apistatus.Rejections(set, "endless_list"),
	}
	for _, why := range request.Reasons {
		m.watches[why] = set.NewCounter(passthroughWatches + `{reason="` + string(why) + `"}`)
	}
	return m
}

// noWatchList is the response to a watch whose initial events the server would not end.
func (m *Metrics) noWatchList() *metav1.Status {
	m.endless.Inc()
	return apistatus.NoWatchList()
}

// count counts a request that kube-apiserver has answered with code.
func (m *Metrics) count(asked *request.Request, code int) {
	m.requests.Add(1)
	m.set.GetOrCreateCounter(passthroughRequests + `{verb="` + asked.MetricVerb() + `",code="` + strconv.Itoa(code) + `"}`).Inc()
}

// Totals are the figures of a Forwarder since it began, as in the metrics.
type Totals struct {
	Requests, Errors uint64
	Streams          int64 // now
}

// Totals returns the current figures. It may be called from any goroutine.
func (p *Forwarder) Totals() Totals {
	m := p.Metrics
	return Totals{Requests: m.requests.Load(), Errors: m.errors.Get(), Streams: int64(m.streams.Get())}
}
