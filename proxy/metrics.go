package proxy

import (
	"fmt"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

var (
	identifiedRequests = exposition.Describe("counter", "watchfan_identified_requests_total",
		"Requests that were not rejected, by how the client shows its identity.")
	clientConnections = exposition.Describe("gauge", "watchfan_client_connections",
		"Open connections of clients.")
	draining = exposition.Describe("gauge", "watchfan_draining",
		"1 from SIGTERM on, 0 before. watchfan_watchers falls while clients move to other replicas.")
	lagEvents = exposition.Describe("gauge", "watchfan_lag_events",
		"Events that the slowest client is behind. At --client-buffer-frames its watch ends, unless it keeps reading.")
	lagBytes = exposition.Describe("gauge", "watchfan_lag_bytes",
		"Bytes that the slowest client is behind. At --client-buffer-bytes its watch ends, unless it keeps reading.")
	authorizationEntries = exposition.Describe("gauge", "watchfan_authorization_cache_entries",
		"Remembered answers to access reviews.")
	avoidedLanes = exposition.Describe("gauge", "watchfan_avoided_lanes",
		"Resources, each in one encoding, passed through for a while because an object is too large or too deep to cache or has a name that JSON cannot express, or because memory was full. The log names them.")
	mistrusted = exposition.Describe("gauge", "watchfan_mistrusted_resources",
		"Resources passed through because their caches differed from kube-apiserver again after they had been listed again. The log and /debug/lanes name them.")
	readSeatsInUse = exposition.Describe("gauge", "watchfan_read_seats_in_use",
		"Cached reads that are being searched, collected, compressed or sealed. One user never has all seats.")
	readsWaiting = exposition.Describe("gauge", "watchfan_reads_waiting",
		"Cached reads that wait for a seat.")
	certificateExpiry = exposition.Describe("gauge", "watchfan_serving_certificate_expiry_timestamp_seconds",
		"End of the serving certificate's validity, in seconds since the Unix epoch.")
	configRead = exposition.Describe("gauge", "watchfan_config_last_reload_successful",
		"1 if the configuration file could be read when it was last looked at, and 0 if not. Then the rules of clients, and the views, are those from before.")
)

// These are of the ledger, by kind; see package account.
var (
	accountHeld = exposition.Describe("gauge", "watchfan_account_held_bytes",
		"Memory held for clients, by kind. /debug/accounts says for whom.")
	accountCut = exposition.Describe("counter", "watchfan_account_cut_bytes_total",
		"Bytes held for clients that were cut, because memory was short or a shared bound was reached and they were the largest holder's.")
	accountRefused = exposition.Describe("counter", "watchfan_account_refused_total",
		"Times that a client could not make the proxy hold more, because of its own bound or a shared one.")
	accountSources = exposition.Describe("gauge", "watchfan_account_sources",
		"Users, tokens and addresses of strangers that something is held for.")
	accountStrangers = exposition.Describe("gauge", "watchfan_account_strangers_bytes",
		"Memory held for clients whose credential kube-apiserver has not accepted, without connections. At a 32nd of --memory-limit the largest is cut.")
)

// serverMetrics are the metrics of a server itself, besides those of the rooms that it is made of.
type serverMetrics struct {
	arrivals   *downstream.Metrics
	identified [auth.Kinds]*metrics.Counter
	configRead *metrics.Gauge

	// Of rejected requests.
	unauthorized, impersonation, foreignHost, loop *metrics.Counter
}

func newServerMetrics(set *metrics.Set) *serverMetrics {
	m := &serverMetrics{
		arrivals:      downstream.NewMetrics(set),
		configRead:    set.NewGauge(configRead, nil),
		unauthorized:  apistatus.Rejections(set, "unauthorized"),
		impersonation: apistatus.Rejections(set, "impersonation"),
		foreignHost:   apistatus.Rejections(set, "foreign_host"),
		loop:          apistatus.Rejections(set, "loop"),
	}
	m.configRead.Set(1)
	for kind := range auth.Kinds {
		m.identified[kind] = set.NewCounter(fmt.Sprintf("%s{identity=%q}", identifiedRequests, kind))
	}
	return m
}

func addAccounts(set *metrics.Set, l *account.Ledger) {
	set.NewGauge(accountSources, func() float64 { return float64(l.Totals().Sources) })
	set.NewGauge(accountStrangers, func() float64 { return float64(l.Totals().Strangers) })
	for _, k := range account.Kinds() {
		of := func(metric string, value func(account.Totals) int64) {
			set.NewGauge(fmt.Sprintf("%s{kind=%q}", metric, k), func() float64 { return float64(value(l.Totals())) })
		}
		of(accountHeld, func(t account.Totals) int64 { return t.Held[k] })
		of(accountCut, func(t account.Totals) int64 { return t.Cut[k] })
		of(accountRefused, func(t account.Totals) int64 { return t.Refused[k] })
	}
}

// addGauges adds the server's own gauges. It is called once, behind Listen.
func (s *Server) addGauges() {
	set := s.set
	set.NewGauge(clientConnections, func() float64 { return float64(s.conns.Count()) })
	set.NewGauge(draining, func() float64 {
		if s.stopping.Load() {
			return 1
		}
		return 0
	})
	set.NewGauge(lagEvents, func() float64 { events, _ := s.cached.Flusher.Lag(); return float64(events) })
	set.NewGauge(lagBytes, func() float64 { _, bytes := s.cached.Flusher.Lag(); return float64(bytes) })
	set.NewGauge(avoidedLanes, func() float64 { return float64(s.cached.Lanes.QuarantinedCount()) })
	set.NewGauge(mistrusted, func() float64 { return float64(len(s.cached.Lanes.Mistrusted())) })
	set.NewGauge(authorizationEntries, func() float64 { return float64(s.authorizer.Remembered()) })
	set.NewGauge(readSeatsInUse, func() float64 { return float64(s.cached.Fairness.Held()) })
	set.NewGauge(readsWaiting, func() float64 { return float64(s.cached.Fairness.Waiting()) })
	addAccounts(set, s.ledger)
	if s.certificate != nil {
		set.NewGauge(certificateExpiry, func() float64 { return float64(s.certificate.Current().Leaf.NotAfter.Unix()) })
	}
}
