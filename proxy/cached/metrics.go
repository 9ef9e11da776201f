package cached

import (
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/exposition"
)

var (
	readsRefused = apistatus.Rejections(metrics.GetDefaultSet(), "max_waiting_reads")

	listsShared = metrics.NewCounter(exposition.Describe("counter", "watchfan_shared_lists_total",
		"Lists of Tables answered with a list that clients share who asked for it at the same instant."))

	seatWaits = metrics.NewCounter(exposition.Describe("counter", "watchfan_read_seat_waits_total",
		"Times that a cached read waited for a seat, which is the right to use a processor."))
	seatWaitSeconds = metrics.NewFloatCounter(exposition.Describe("counter", "watchfan_read_seat_wait_seconds_total",
		"Time that cached reads spent waiting for a seat."))
)

// Metrics are the metrics of a Reads.
type Metrics struct {
	flusher *fanout.Metrics
}

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	return &Metrics{flusher: fanout.NewMetrics(set)}
}

func countSeatWait(d time.Duration) {
	seatWaits.Inc()
	seatWaitSeconds.Add(d.Seconds())
}
