package proxy

import (
	"math"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/passthrough"
)

// debugState describes the process. It may be called from any goroutine, and takes a few
// microseconds for each lane, whatever the lane holds.
func (s *Server) debugState() diagnose.DebugState {
	now := time.Now()
	d := diagnose.DebugState{Version: s.opts.Version, Time: now, StartTime: s.started, Totals: currentTotals(), Lanes: s.cached.lanes.Status()}
	for _, l := range d.Lanes {
		d.Totals.DeliveredEvents += l.DeliveredEvents
		d.Totals.DeliveredBytes += l.DeliveredBytes
	}
	for _, check := range s.health.readiness() {
		c := diagnose.DebugCheck{Name: check.name}
		if err := check.ok(); err != nil {
			c.Error = err.Error()
		}
		d.Checks = append(d.Checks, c)
	}
	return d
}

func currentTotals() diagnose.DebugTotals {
	t := fanout.CurrentTotals()
	d := diagnose.DebugTotals{
		Clients:             t.Subscriptions,
		ParkedClients:       t.Parked,
		Parks:               t.Parks,
		Flushes:             t.Flushes,
		EndedWatches:        make(map[string]uint64),
		Delivery:            diagnose.DebugDelivery{Seconds: t.DeliverySeconds},
		PassthroughRequests: passthrough.Requests.Load(),
		PassthroughStreams:  passthrough.Streams.Load(),
		PassthroughErrors:   passthrough.Errors.Get(),
	}
	for reason, n := range t.Ended {
		d.EndedWatches[string(reason)] = n
	}
	for _, b := range t.Delivery {
		if d.Delivery.Count = b.Count; !math.IsInf(b.LE, 1) {
			d.Delivery.Buckets = append(d.Delivery.Buckets, diagnose.DebugBucket{Le: b.LE, Count: b.Count})
		}
	}
	return d
}
