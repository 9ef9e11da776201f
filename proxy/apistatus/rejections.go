package apistatus

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/exposition"
)

var rejectedRequests = exposition.Describe("counter", "watchfan_rejected_requests_total",
	"Requests rejected by this proxy, by reason.")

// Rejections returns the counter of requests rejected for one reason. It is called once for each
// reason, while package variables are initialized.
func Rejections(reason string) *metrics.Counter {
	return metrics.NewCounter(rejectedRequests + `{reason="` + reason + `"}`)
}

var (
	// RejectedMalformed counts requests whose heads are not valid.
	RejectedMalformed = Rejections("malformed")
	// RejectedHeld counts requests of clients for which the proxy holds too much already.
	RejectedHeld = Rejections("held_memory")
)
