package proxy

import (
	"errors"
	"math"
	"net"
	"net/http"
	"runtime"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/base/machine"
	"github.com/watchfan/watchfan/proxy/operate/admin"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

func newAdmin(s *Server, guard *exchange.Guard) *admin.Port {
	checks := []diagnose.Check{
		{Name: "resident-resources", OK: s.cached.ResidentSynced},
		{Name: "shutdown", OK: s.notStopping},
		{Name: "upstream", OK: s.check.OK},
	}
	if s.fallback != nil {
		checks = append(checks, diagnose.Check{Name: "fallback", OK: s.fallback.OK})
	}
	return admin.New(admin.Config{
		Loopback:  net.ParseIP(s.opts.AdminBindAddress).IsLoopback(),
		Profiling: s.opts.Profiling,
		Metrics:   s.set,
		Checks:    checks,
		Watchers:  diagnose.NewWatchersPage(&s.cached.Watchers, s.passthrough.Watches(), s.cached.Flusher, s.check.OK),
		State:     func() diagnose.DebugState { return s.debugState(checks) },
		History:   s.history,
		Named: map[string]diagnose.NamedPage{
			diagnose.AccountsPath:  diagnose.AccountsPage(s.ledger),
			diagnose.ConsumersPath: diagnose.ConsumersPage(s.consumers.Report),
			diagnose.ObservedPath:  diagnose.ObservedPage(s.observer.Report),
		},
		Local:   localToAdmin,
		Foreign: s.metrics.foreignHost,
	}, guard)
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
func (s *Server) debugState(checks []diagnose.Check) diagnose.DebugState {
	now := time.Now()
	d := diagnose.DebugState{
		Version:          s.opts.Version,
		Time:             now,
		StartTime:        s.started,
		Upstream:         s.upstream.Address(),
		Processors:       runtime.GOMAXPROCS(0),
		MemoryLimitBytes: s.memory.Limit(),
		Checks:           diagnose.RunChecks(checks),
		Totals:           s.totals(),
		Now:              s.history.Latest(now),
		Lanes:            s.debugLanes(now),
		Passed:           diagnose.PassedCounts(s.passthrough.Watches().Open()),
		Mistrusted:       s.cached.Lanes.Mistrusted(),
		SelfCheckSeconds: s.opts.SelfCheck.SelfCheckInterval.Seconds(),
	}
	d.Watches.Protocols, d.Watches.Gzip = s.cached.Watchers.Forms()
	if seen := s.observer.Report(); !seen.Since.IsZero() {
		seen.Recent = nil
		d.Observed = &seen
	}
	return d
}

func (s *Server) debugLanes(now time.Time) []diagnose.DebugLane {
	due, all := s.cached.SelfChecks.Due(), s.cached.Lanes.Status()
	lanes := make([]diagnose.DebugLane, 0, len(all))
	for _, l := range all {
		d := diagnose.DebugLane{Status: l}
		next, ok := due[schema.GroupVersionResource{Group: l.Group, Version: l.Version, Resource: l.Resource}]
		if ok && !l.Table {
			d.SelfCheckDue = new(lane.ShownAt(now, next))
		}
		lanes = append(lanes, d)
	}
	return lanes
}

// totals returns the current figures. It may be called from any goroutine.
func (s *Server) totals() diagnose.DebugTotals {
	t, passed := s.cached.Flusher.Totals(), s.passthrough.Totals()
	d := diagnose.DebugTotals{
		Clients:             t.Subscriptions,
		ParkedClients:       t.Parked,
		Connections:         s.conns.Count(),
		HTTP2:               s.http2.Connections(),
		Parks:               t.Parks,
		DeliveredEvents:     t.Events,
		DeliveredBytes:      t.Bytes,
		Flushes:             t.Flushes,
		EndedWatches:        make(map[string]uint64),
		Delivery:            diagnose.DebugDelivery{Seconds: t.DeliverySeconds},
		UpstreamEvents:      s.cached.Lanes.Changes(),
		ProcessorSeconds:    machine.ProcessorTime().Seconds(),
		MemoryBytes:         s.memory.InUse(),
		HeldBytes:           s.ledger.Passing(),
		PassthroughRequests: passed.Requests,
		PassthroughStreams:  passed.Streams,
		PassthroughErrors:   passed.Errors,
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
