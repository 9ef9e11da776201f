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

// RejectedMalformed counts requests whose heads are not valid.
var RejectedMalformed = Rejections("malformed")
