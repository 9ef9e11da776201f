package downstream

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/account"
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
