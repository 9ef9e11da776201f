package downstream

import (
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Base is what the servers of all protocols have in common. It is immutable once they serve.
type Base struct {
	Handle func(*exchange.Exchange)                    // answers a request
	Refuse func(*exchange.Exchange, *exchange.Refusal) // answers one that a protocol rejects
	Ledger *account.Ledger                             // counts what is held for clients
	Conns  *Connections
	Poller *Poller
	Guard  *exchange.Guard

	Malformed, Held *metrics.Counter // requests rejected as malformed, and because their clients hold too much
}

// Limits for every client.
const (
	HeaderTimeout = 32 * time.Second // for a request's head; kube-apiserver's ReadHeaderTimeout
	IdleTimeout   = 90 * time.Second // between requests; the same as kube-apiserver's

	// RequestTimeout is for an ordinary request and its whole answer, unless the client wants less; the
	// default of kube-apiserver's --request-timeout. Watches, logs and upgrades have no such limit.
	RequestTimeout = 60 * time.Second

	// StallTimeout is the longest time without progress of one write to a client, or of one read of
	// its request's body.
	StallTimeout = 60 * time.Second
)

// Stalled returns when a write or a read that begins now has stalled: after StallTimeout, or when the
// whole is due if that is earlier. The zero time is no such limit.
func Stalled(due time.Time) time.Time {
	at := time.Now().Add(StallTimeout)
	if !due.IsZero() && due.Before(at) {
		return due
	}
	return at
}

var (
	rejectedConnections = exposition.Describe("counter", "watchfan_rejected_connections_total",
		"Connections reset because of --max-connections, the limit of open files or a lack of memory.")
	abandonedConnections = exposition.Describe("counter", "watchfan_abandoned_connections_total",
		"Connections whose clients left before it was their turn. It rises when very many clients connect at once.")
)

// Metrics are the metrics of connections that arrive.
type Metrics struct{ rejected, abandoned *metrics.Counter }

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	return &Metrics{rejected: set.NewCounter(rejectedConnections), abandoned: set.NewCounter(abandonedConnections)}
}
