package proxy

import (
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
)

// described is every metric of ours, by name. It does not change once the package is initialised.
var described = maps.Clone(fanout.Metrics)

// describe adds a metric to described and returns its name. kind is its type, as Prometheus calls it, and question what it answers.
func describe(kind, name, question string) string {
	described[name] = fanout.Metric{Type: kind, Question: question}
	return name
}

var passthroughRequests = describe("counter", "watchfan_passthrough_requests_total",
	"How many requests are passed through, which of them might have been served here, and what does kube-apiserver answer? Watches and logs are counted when they begin.")

func countPassthrough(req *http.Request, code int) {
	passedThrough.Add(1)
	metrics.GetOrCreateCounter(passthroughRequests + `{verb="` + requestVerb(req) + `",code="` + strconv.Itoa(code) + `"}`).Inc()
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
	passthroughErrors = metrics.NewCounter(describe("counter", "watchfan_passthrough_errors_total",
		"Is kube-apiserver unreachable for what we pass through? Counts requests that got no response from it."))
	passthroughBroken = metrics.NewCounter(describe("counter", "watchfan_passthrough_broken_responses_total",
		"Does kube-apiserver break responses off in the middle? Clients see a broken connection for each."))

	// passedThrough is the sum of watchfan_passthrough_requests_total.
	passedThrough atomic.Uint64

	passthroughInFlight atomic.Int64
	passthroughStreams  atomic.Int64
	_                   = metrics.NewGauge(describe("gauge", "watchfan_passthrough_requests_in_flight",
		"How many passed-through requests are being answered now?"), func() float64 { return float64(passthroughInFlight.Load()) })
	_ = metrics.NewGauge(describe("gauge", "watchfan_passthrough_streams",
		"How many passed-through watches, logs and upgrades are open now?"), func() float64 { return float64(passthroughStreams.Load()) })

	identifiedRequests = describe("counter", "watchfan_identified_requests_total",
		"How do clients on either port show who they are? Counts requests that were not turned away.")
	identified = [identityKinds]*metrics.Counter{
		kindAnonymous:   metrics.NewCounter(identifiedRequests + `{identity="anonymous"}`),
		kindOwn:         metrics.NewCounter(identifiedRequests + `{identity="own"}`),
		kindToken:       metrics.NewCounter(identifiedRequests + `{identity="token"}`),
		kindCertificate: metrics.NewCounter(identifiedRequests + `{identity="certificate"}`),
		kindFrontProxy:  metrics.NewCounter(identifiedRequests + `{identity="front-proxy"}`),
	}

	rejectedRequests = describe("counter", "watchfan_rejected_requests_total",
		"Requests that were refused here, by reason.")
	rejectedUnauthorized  = metrics.NewCounter(rejectedRequests + `{reason="unauthorized"}`)
	rejectedImpersonation = metrics.NewCounter(rejectedRequests + `{reason="impersonation"}`)
	rejectedForeignHost   = metrics.NewCounter(rejectedRequests + `{reason="foreign_host"}`)
	rejectedLoop          = metrics.NewCounter(rejectedRequests + `{reason="loop"}`)
	rejectedMalformed     = metrics.NewCounter(rejectedRequests + `{reason="malformed"}`)

	readsRefused = metrics.NewCounter(rejectedRequests + `{reason="max_waiting_reads"}`)
	rejectedLong = metrics.NewCounter(rejectedRequests + `{reason="max_long_requests"}`)

	longWaiting atomic.Int64
	_           = metrics.NewGauge(describe("gauge", "watchfan_long_requests_waiting",
		"Requests with selectors of more than 8 KiB that wait for their turn at kube-apiserver."), func() float64 { return float64(longWaiting.Load()) })

	seatWaits = metrics.NewCounter(describe("counter", "watchfan_read_seat_waits_total",
		"How often does the work of a cached read wait for other reads' work? See the package's documentation, Fairness."))
	seatWaitSeconds = metrics.NewFloatCounter(describe("counter", "watchfan_read_seat_wait_seconds_total",
		"How long does the work of cached reads wait for other reads' work, all in all?"))

	rejectedConnections = metrics.NewCounter(describe("counter", "watchfan_rejected_connections_total",
		"Have clients had as many connections as --max-connections, or the files that may be open, allow, or was memory spent? Counts those that were reset."))

	abandonedConnections = metrics.NewCounter(describe("counter", "watchfan_abandoned_connections_total",
		"Do so many clients come at once that some leave before it is their turn?"))

	rejectedTooMany = map[rejection]*metrics.Counter{
		rejectedWatches:     metrics.NewCounter(rejectedRequests + `{reason="max_watches"}`),
		rejectedUserWatches: metrics.NewCounter(rejectedRequests + `{reason="max_watches_per_user"}`),
		rejectedMemory:      metrics.NewCounter(rejectedRequests + `{reason="memory"}`),
		rejectedFilling:     metrics.NewCounter(rejectedRequests + `{reason="lane_filling"}`),
	}

	memorySheds = metrics.NewCounter(describe("counter", "watchfan_memory_sheds_total",
		"How many lanes without clients were stopped because memory was short?"))

	authorizations = describe("counter", "watchfan_authorizations_total",
		"How often is it decided whether a client may read, from memory or by asking kube-apiserver?")
	authorizedFromMemory   = metrics.NewCounter(authorizations + `{source="memory"}`)
	authorizedFromUpstream = metrics.NewCounter(authorizations + `{source="upstream"}`)

	accessReviewsTotal = describe("counter", "watchfan_access_reviews_total",
		"How many access reviews does kube-apiserver get from us, for new requests and for open watches, and what does it say? none is no clear answer.")
	accessReviews = [...]*metrics.Counter{
		verdictNone: metrics.NewCounter(accessReviewsTotal + `{verdict="none"}`),
		verdictNo:   metrics.NewCounter(accessReviewsTotal + `{verdict="no"}`),
		verdictYes:  metrics.NewCounter(accessReviewsTotal + `{verdict="yes"}`),
	}
	reviewsRefused = metrics.NewCounter(describe("counter", "watchfan_access_reviews_refused_total",
		"May we not ask what users of certificates and front proxies may do? Then their reads are all passed through."))

	evictionsTotal = describe("counter", "watchfan_evictions_total",
		"Why did watches fall past their bounds?")
	evictions = func() map[Cause]*metrics.Counter {
		m := make(map[Cause]*metrics.Counter)
		for _, c := range []Cause{ClientNotReading, NetworkLoss, ClientReadsSlowly, NetworkSlow, WatchfanSlow} {
			m[c] = metrics.NewCounter(evictionsTotal + `{reason="` + string(c) + `"}`)
		}
		return m
	}()

	definitionChanges = metrics.NewCounter(describe("counter", "watchfan_definition_changes_total",
		"How often do the definitions of custom resources change, which ends their watches?"))

	handlerPanics = metrics.NewCounter(describe("counter", "watchfan_handler_panics_total",
		"Did the handling of a request or of a stream panic? Each one is a bug of ours, is logged, and ends that client's connection alone."))
)

func countSeatWait(d time.Duration) {
	seatWaits.Inc()
	seatWaitSeconds.Add(d.Seconds())
}

// The metrics of a server that runs; see registerMetrics.
var (
	clientConnections = describe("gauge", "watchfan_client_connections",
		"How many connections do clients have, whatever they do on them?")
	draining = describe("gauge", "watchfan_draining",
		"Is it stopping? 1 from SIGTERM on; watchfan_watchers then falls as clients go on elsewhere.")
	lagEvents = describe("gauge", "watchfan_lag_events",
		"How many events is the client behind that is furthest? At --client-buffer-frames it is ended, unless it keeps reading.")
	lagBytes = describe("gauge", "watchfan_lag_bytes",
		"How many bytes is the client behind that is furthest? At --client-buffer-bytes it is ended, unless it keeps reading.")
	authorizationEntries = describe("gauge", "watchfan_authorization_cache_entries",
		"How many answers to access reviews are remembered?")
	memoryLimitBytes = describe("gauge", "watchfan_memory_limit_bytes",
		"How much memory may be used? 0 is no limit.")
	memoryUsedBytes = describe("gauge", "watchfan_memory_used_bytes",
		"How much of it is? At 80% of the limit caches are given up, at 90% new watches and lists are refused. 0 where there is no limit.")
	avoidedLanes = describe("gauge", "watchfan_avoided_lanes",
		"How many resources, in one encoding each, are passed through for a while because an object of theirs is too large or too deep to be cached, or because memory was full? The log names them.")
	readSeatsInUse = describe("gauge", "watchfan_read_seats_in_use",
		"How many cached reads are being searched for, collected, compressed or sealed now? One user never has all seats.")
	readsWaiting = describe("gauge", "watchfan_reads_waiting",
		"How many cached reads wait for a seat now?")
	certificateExpiry = describe("gauge", "watchfan_serving_certificate_expiry_timestamp_seconds",
		"When does the serving certificate end, in seconds since the Unix epoch?")
)

// registerMetrics adds the server's own gauges until unregister is called.
func (s *Server) registerMetrics() (unregister func()) {
	set := metrics.NewSet()
	set.NewGauge(clientConnections, func() float64 { return float64(s.conns.count()) })
	set.NewGauge(draining, func() float64 {
		if s.stopping.Load() {
			return 1
		}
		return 0
	})
	set.NewGauge(lagEvents, func() float64 { events, _ := s.cached.flusher.Lag(); return float64(events) })
	set.NewGauge(lagBytes, func() float64 { _, bytes := s.cached.flusher.Lag(); return float64(bytes) })
	set.NewGauge(memoryLimitBytes, func() float64 { return float64(s.memory.limit) })
	set.NewGauge(memoryUsedBytes, func() float64 { return float64(s.memory.used.Load()) })
	set.NewGauge(avoidedLanes, func() float64 { return float64(s.cached.lanes.avoiding()) })
	set.NewGauge(authorizationEntries, func() float64 { return float64(s.authorizer.verdicts.size()) })
	set.NewGauge(readSeatsInUse, func() float64 { return float64(s.cached.fairness.seats()) })
	set.NewGauge(readsWaiting, func() float64 { return float64(s.cached.fairness.waits.Load()) })
	if s.certificate != nil {
		set.NewGauge(certificateExpiry, func() float64 { return float64(s.certificate.current().Leaf.NotAfter.Unix()) })
	}
	metrics.RegisterSet(set)
	return func() { metrics.UnregisterSet(set, true) }
}
