package proxy

import (
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/admin"
	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/passthrough"
)

// newAdmin returns the admin port of s.
func newAdmin(s *Server, log *slog.Logger) *admin.Port {
	checks := []admin.Check{
		{Name: "resident-resources", OK: s.cached.ResidentSynced},
		{Name: "shutdown", OK: s.notStopping},
		{Name: "upstream", OK: s.check.OK},
	}
	return admin.New(admin.Config{
		Loopback:  net.ParseIP(s.opts.AdminBindAddress).IsLoopback(),
		Profiling: s.opts.Profiling,
		Checks:    checks,
		Watchers:  diagnose.NewWatchersPage(s.cached.Watchers(), s.cached.Flusher(), s.check.OK),
		State:     func() diagnose.DebugState { return s.debugState(checks) },
		Local:     localToAdmin,
		Foreign:   rejectedForeignHost,
	}, log)
}

// localToAdmin is local for a request to the admin port.
func localToAdmin(r *http.Request) bool {
	return local(r.Header.Values, r.Host)
}

func (s *Server) notStopping() error {
	if s.stopping.Load() {
		return errors.New("shutting down")
	}
	return nil
}

// debugState describes the process. It may be called from any goroutine. It takes a few
// microseconds for each lane, independent of the lane's size.
func (s *Server) debugState(checks []admin.Check) diagnose.DebugState {
	d := diagnose.DebugState{
		Version:   s.opts.Version,
		Time:      time.Now(),
		StartTime: s.started,
		Totals:    currentTotals(),
		Lanes:     s.cached.Lanes().Status(),
	}
	for _, check := range checks {
		c := diagnose.DebugCheck{Name: check.Name}
		if err := check.OK(); err != nil {
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
		DeliveredEvents:     t.Events,
		DeliveredBytes:      t.Bytes,
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
