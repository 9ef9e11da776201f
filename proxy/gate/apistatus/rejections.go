package apistatus

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/exposition"
)

var rejectedRequests = exposition.Describe("counter", "watchfan_rejected_requests_total",
	"Requests rejected by this proxy, by reason.")

// Rejections returns the counter of a server's requests rejected for one reason, which packages may
// share. set is the server's.
func Rejections(set *metrics.Set, reason string) *metrics.Counter {
	return set.GetOrCreateCounter(rejectedRequests + `{reason="` + reason + `"}`)
}
