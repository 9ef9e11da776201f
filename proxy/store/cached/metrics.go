package cached

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/store/watchers"
)

var (
	listsShared = exposition.Describe("counter", "watchfan_shared_lists_total",
		"Lists of Tables answered with a list that clients share who asked for it at the same instant.")

	seatWaits = exposition.Describe("counter", "watchfan_read_seat_waits_total",
		"Times that a cached read waited for a seat, which is the right to use a processor.")
	seatWaitSeconds = exposition.Describe("counter", "watchfan_read_seat_wait_seconds_total",
		"Time that cached reads spent waiting for a seat.")
)

// Metrics are the metrics of a Reads, and of all that it is made of.
type Metrics struct {
	flusher  *fanout.Metrics
	lanes    *metrics.Set
	watchers *watchers.Metrics

	sharedLists     *metrics.Counter
	seatWaits       *metrics.Counter
	seatWaitSeconds *metrics.FloatCounter

	waitingReads, vain, unfitForm, invalidShard, withheldShard, withheldView, held, unauthorized *metrics.Counter
}

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	return &Metrics{
		flusher:  fanout.NewMetrics(set),
		lanes:    set,
		watchers: watchers.NewMetrics(set),

		sharedLists:     set.NewCounter(listsShared),
		seatWaits:       set.NewCounter(seatWaits),
		seatWaitSeconds: set.NewFloatCounter(seatWaitSeconds),

		waitingReads:  apistatus.Rejections(set, "max_waiting_reads"),
		vain:          apistatus.Rejections(set, "waited_in_vain"),
		unfitForm:     apistatus.Rejections(set, "view_encoding"),
		invalidShard:  apistatus.Rejections(set, "invalid_shard"),
		withheldShard: apistatus.Rejections(set, "shard"),
		withheldView:  apistatus.Rejections(set, "view"),
		held:          apistatus.Rejections(set, "held_memory"),
		unauthorized:  apistatus.Rejections(set, "unauthorized"),
	}
}
