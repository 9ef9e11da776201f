package proxy

import (
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
)

// How many requests are passed through, which of them might have been served here, and what does kube-apiserver answer? Watches and logs are
// counted when they begin.
func countPassthrough(req *http.Request, code int) {
	metrics.GetOrCreateCounter(`watchfan_passthrough_requests_total{verb="` + requestVerb(req) + `",code="` + strconv.Itoa(code) + `"}`).Inc()
}

// requestVerb is get, list or watch for reads of objects, as kube-apiserver's metrics call them, and other for the rest.
func requestVerb(req *http.Request) string {
	r, ok := parsePath(req.URL.Path)
	switch {
	case !ok || req.Method != http.MethodGet:
		return "other"
	case r.verb == "list" && boolParameter(req.URL.Query(), "watch"):
		return "watch"
	}
	return r.verb
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

	// How do clients on either port show who they are? Counts requests that were not turned away.
	identified = [identityKinds]*metrics.Counter{
		kindAnonymous:   metrics.NewCounter(`watchfan_identified_requests_total{identity="anonymous"}`),
		kindOwn:         metrics.NewCounter(`watchfan_identified_requests_total{identity="own"}`),
		kindToken:       metrics.NewCounter(`watchfan_identified_requests_total{identity="token"}`),
		kindCertificate: metrics.NewCounter(`watchfan_identified_requests_total{identity="certificate"}`),
		kindFrontProxy:  metrics.NewCounter(`watchfan_identified_requests_total{identity="front-proxy"}`),
	}

	// May we not ask what users of certificates and front proxies may do? Then their reads are all passed through: see the RBAC in proxy/doc.go.
	reviewsRefused = metrics.NewCounter(`watchfan_access_reviews_refused_total`)

	// Are clients turned away before they are anybody, or because they may not act as another? By reason.
	rejectedUnauthorized  = metrics.NewCounter(`watchfan_rejected_requests_total{reason="unauthorized"}`)
	rejectedImpersonation = metrics.NewCounter(`watchfan_rejected_requests_total{reason="impersonation"}`)
	rejectedForeignHost   = metrics.NewCounter(`watchfan_rejected_requests_total{reason="foreign_host"}`)
	rejectedMalformed     = metrics.NewCounter(`watchfan_rejected_requests_total{reason="malformed"}`)

	// Why did watches fall past their bounds?
	evictions = func() map[Cause]*metrics.Counter {
		m := make(map[Cause]*metrics.Counter)
		for _, c := range []Cause{ClientNotReading, NetworkLoss, ClientReadsSlowly, NetworkSlow, WatchfanSlow} {
			m[c] = metrics.NewCounter(`watchfan_evictions_total{reason="` + string(c) + `"}`)
		}
		return m
	}()

	// How often do the definitions of custom resources change, which ends their watches?
	definitionChanges = metrics.NewCounter(`watchfan_definition_changes_total`)

	// Did a handler panic? Each one is a bug of ours, and logged.
	handlerPanics = metrics.NewCounter(`watchfan_handler_panics_total`)
)
