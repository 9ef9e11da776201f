package proxy

import (
	"math"
	"time"

	"github.com/watchfan/watchfan/fanout"
)

// debugState describes the process. It may be called from any goroutine, and takes a few
// microseconds for each lane, whatever the lane holds.
func (s *Server) debugState() debugState {
	now := time.Now()
	d := debugState{Version: s.opts.Version, Time: now, StartTime: s.started, Totals: currentTotals(), Lanes: s.cached.lanes.status()}
	for _, l := range d.Lanes {
		d.Totals.DeliveredEvents += l.DeliveredEvents
		d.Totals.DeliveredBytes += l.DeliveredBytes
	}
	for _, check := range s.health.readiness() {
		c := debugCheck{Name: check.name}
		if err := check.ok(); err != nil {
			c.Error = err.Error()
		}
		d.Checks = append(d.Checks, c)
	}
	return d
}

func currentTotals() debugTotals {
	t := fanout.CurrentTotals()
	d := debugTotals{
		Clients:             t.Subscriptions,
		ParkedClients:       t.Parked,
		Parks:               t.Parks,
		Flushes:             t.Flushes,
		EndedWatches:        make(map[string]uint64),
		Delivery:            debugDelivery{Seconds: t.DeliverySeconds},
		PassthroughRequests: passedThrough.Load(),
		PassthroughStreams:  passthroughStreams.Load(),
		PassthroughErrors:   passthroughErrors.Get(),
	}
	for reason, n := range t.Ended {
		d.EndedWatches[string(reason)] = n
	}
	for _, b := range t.Delivery {
		if d.Delivery.Count = b.Count; !math.IsInf(b.LE, 1) {
			d.Delivery.Buckets = append(d.Delivery.Buckets, debugBucket{b.LE, b.Count})
		}
	}
	return d
}
