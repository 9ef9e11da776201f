package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func stormSection(o *Options) *report.Section {
	return &report.Section{
		Bench: "Storm",
		Title: fmt.Sprintf("Storms: %d watches that all come at once, "+
			"and the latency of %d others with %v events a second meanwhile", o.StormClients, o.StormUntouched, o.pace()),
		Note: "Upstream = lists of kube-apiserver, among them questions how new it is, and watches that it serves more.",
		Columns: []report.Column{
			report.Col("all live s", "live-ns", 1e-9), report.Col("p99 ms during", "during-p99-ns", 1e-6), report.Col("CPU ms/watch", "cpu-ns/watch", 1e-6),
			report.Col("p99 ms before", "before-p99-ns", 1e-6), report.Col("after", "after-p99-ns", 1e-6), report.Col("watches/s", "watches/s", 1),
			report.Col("during/before", "x", 1), report.Col("p50 ms before", "before-p50-ns", 1e-6),
			report.Col("during", "during-p50-ns", 1e-6), report.Col("worst ms", "during-max-ns", 1e-6),
			report.Col("upstream: lists", "upstream-lists", 1), report.Col("watches", "upstream-watches", 1),
			report.Col("429s", "refused", 1), report.Col("peak RSS MiB", "peak-B", 1.0/(1<<20)),
		},
		Costs: 3,
	}
}

const (
	stormTime    = 3 * time.Minute // for one storm
	stormCalm    = 4 * time.Second // of deliveries before it, and after it
	stormObjects = 1000            // initial events of an informer
	stormSpace   = "storm"         // their namespace
	stormPath    = "/api/v1/namespaces/" + stormSpace + "/configmaps"
)

// The kinds of storms. Their watches get no events: other parts measure the cost of open watches.
const (
	stormReconnect = "reconnect"
	stormInformers = "informers"
)

// A storm is a kind of storm and the priority of its clients.
type storm struct {
	kind     string
	priority server.Priority
	floor    bool // the untouched watch the floor
}

var storms = func() (all []storm) {
	for _, kind := range []string{stormReconnect, stormInformers} {
		for _, priority := range []server.Priority{server.PriorityNormal, server.PriorityIdle} {
			all = append(all, storm{kind, priority, false}, storm{kind, priority, true})
		}
	}
	return all
}()

func (s storm) String() string {
	if s.floor {
		return s.kind + "-floor"
	}
	return s.kind
}

func createStormObjects(ctx context.Context, w *load.Writer) error {
	if err := w.CreateNamespace(ctx, stormSpace); err != nil {
		return err
	}
	pad := strings.Repeat("x", 200)
	return load.InParallel(ctx, 0, stormObjects, func(ctx context.Context, i int) error {
		_, err := w.Send(ctx, "POST", stormPath, fmt.Sprintf(
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"still-%04d"},"data":{"pad":"%s"}}`, i, pad))
		return err
	})
}

func (p *program) storm(ctx context.Context, st *server.Stage) error {
	if !p.stormy {
		if err := createStormObjects(ctx, st.Writer); err != nil {
			return err
		}
		p.stormy = true
	}
	for _, s := range storms {
		if s.floor && st.Peer == report.Direct {
			continue // the floor is beside watchfan
		}
		n := p.opts.StormClients
		x := report.Sample{Peer: st.Peer, Axes: report.Axes("storm", s, "priority", s.priority, "clients", n)}
		bounded, cancel := context.WithTimeoutCause(ctx, stormTime, fmt.Errorf("not over after %v", stormTime))
		x.Metrics, x.Remark, x.Err = p.measureStorm(bounded, st, s, n)
		cancel()
		if err := p.note(ctx, st, "Storm", x); err != nil {
			return err
		}
	}
	return nil
}

// measureStorm also returns a remark. The untouched are those of the last session.
func (p *program) measureStorm(ctx context.Context, st *server.Stage, x storm, n int) ([]report.Metric, string, error) {
	sessions := []*session{p.session(st)}
	if x.floor {
		floor, err := server.NewFloorStage(st.Peer, p.opts.Objects, p.opts.EventSize, 0)
		if err != nil {
			return nil, "", err
		}
		defer floor.Stop()
		sessions = append(sessions, p.session(floor))
	}
	last := len(sessions) - 1
	for i, s := range sessions {
		watchers := p.opts.StormUntouched
		if i < last {
			watchers = 1 // because watchfan gives a storm all processors while it delivers nothing
		}
		defer s.disband()
		if err := s.gather(ctx, watchers); err != nil {
			return nil, "", err
		}
	}
	front, err := p.stormFront(ctx, st, x, n)
	if err != nil {
		return nil, "", err
	}
	defer front.Stop()
	r := &stormRun{program: p, stage: st, fleet: sessions[last].fleet, front: front, clients: n}
	r.processes = append(server.WithBench(st), front.Process())
	if x.floor {
		r.processes = append(r.processes, sessions[last].Processes()...)
	}
	var stops []func() error
	for _, s := range sessions {
		stops = append(stops, s.Load(ctx, s.fleet, p.opts.pace()))
	}
	m, remark, err := r.measure(ctx)
	for i, s := range sessions {
		if stopped := stops[i](); err == nil {
			err = stopped
		}
		if err == nil {
			err = s.fleet.Drain(ctx, time.Minute)
		}
	}
	return m, remark, err
}

// stormFrontName is the command that holds the clients of a storm, and their process in figures. They have
// a process of their own, because the reader of the untouched watchers must not share one with thousands
// of goroutines.
const stormFrontName = "storm-front"

func (p *program) stormFront(ctx context.Context, st *server.Stage, x storm, n int) (*server.Helper, error) {
	e := st.Endpoint()
	rv, err := load.ListVersion(ctx, e, st.Coll)
	if err != nil {
		return nil, err
	}
	uri, objects := stormPath+"?watch=1&allowWatchBookmarks=true&resourceVersion="+rv, 0
	if x.kind == stormInformers {
		uri, objects = stormPath+load.WithInitialEvents, stormObjects
	}
	job := load.StormJob{Addr: e.Addr, TLS: e.TLS != nil, Clients: n, Objects: objects}
	job.Request = load.RequestHead(e, uri, false)
	return server.StartHelper(x.priority, stormFrontName, job, new(load.StormState))
}

// A stormRun is one storm while events are written.
type stormRun struct {
	*program
	stage     *server.Stage
	fleet     *load.Fleet    // the untouched
	front     *server.Helper // its clients
	clients   int
	processes []measure.Process // all
}

// measure returns the figures of the storm, and a remark on attempts that failed. The untouched are
// read before it, from calm on, during it, and after it.
func (r *stormRun) measure(ctx context.Context) ([]report.Metric, string, error) {
	if err := load.Sleep(ctx, r.opts.Warmup); err != nil {
		return nil, "", err
	}
	calm := r.fleet.Read()
	if err := load.Sleep(ctx, stormCalm); err != nil {
		return nil, "", err
	}
	before := r.fleet.Read()
	lists, watches, err := r.upstream(ctx)
	if err != nil {
		return nil, "", err
	}
	o, err := r.storm(ctx)
	if err != nil {
		return nil, "", errors.Join(err, r.fleet.Err())
	}
	during := r.fleet.Read()
	moreLists, moreWatches, err := r.upstream(ctx)
	if err != nil {
		return nil, "", err
	}
	if err := load.Sleep(ctx, stormCalm); err != nil {
		return nil, "", err
	}
	remark := ""
	if o.done.Failed > 0 {
		remark = fmt.Sprintf("%d attempts failed, the first: %s", o.done.Failed, o.done.FirstError)
	}
	m := []report.Metric{
		report.M("live-ns", float64(o.live)), report.M("watches/s", float64(r.clients)/o.live.Seconds()),
		report.M("refused", float64(o.done.Refused)), report.M("peak-B", float64(o.peak)),
		report.M("cpu-ns/watch", float64(o.used.CPU[r.stage.Peer.Name])/float64(r.clients)),
		report.M("upstream-lists", moreLists-lists), report.M("upstream-watches", moreWatches-watches),
	}
	m = append(m, stormNotice(calm, before, during, r.fleet.Read())...)
	return append(m, report.UsageMetrics(&o.used)...), remark, r.fleet.Err()
}

// upstream returns the lists of the resource that kube-apiserver has answered, and its open watches.
func (r *stormRun) upstream(ctx context.Context) (lists, watches float64, err error) {
	e, ofResource := r.stage.Cluster.Endpoint, `resource="configmaps"`
	if lists, err = server.Sum(ctx, e, "apiserver_request_total", ofResource, `verb="LIST"`); err != nil {
		return 0, 0, err
	}
	watches, err = server.Sum(ctx, e, "apiserver_longrunning_requests", ofResource, `verb="WATCH"`)
	return lists, watches, err
}

// stormNotice returns the latency of the untouched before a storm (from calm to before), during it
// (from before to during) and after it.
func stormNotice(calm, before, during, after *load.Reading) []report.Metric {
	after.Sub(during)
	during.Sub(before)
	before.Sub(calm)
	q := func(r *load.Reading, q float64) float64 { return float64(r.Latency.Quantile(q)) }
	return []report.Metric{
		report.M("before-p99-ns", q(before, 0.99)), report.M("during-p99-ns", q(during, 0.99)), report.M("after-p99-ns", q(after, 0.99)),
		report.M("before-p50-ns", q(before, 0.5)), report.M("during-p50-ns", q(during, 0.5)),
		report.M("during-max-ns", q(during, 1)), report.M("x", q(during, 0.99)/max(q(before, 0.99), 1)),
	}
}

// A stormOutcome is the cost of a storm.
type stormOutcome struct {
	done load.StormState
	live time.Duration // until the last client was live
	used measure.Usage
	peak int64 // resident memory of the peer, in bytes
}

// storm lets the clients connect, and returns when all are live.
func (r *stormRun) storm(ctx context.Context) (o stormOutcome, err error) {
	meter, err := measure.StartMeter(r.processes)
	if err != nil {
		return o, err
	}
	begin := time.Now()
	r.front.Orders.Write([]byte("\n"))
	ended := make(chan error, 1)
	go func() { ended <- r.front.State(&o.done) }()
	for live := false; !live && err == nil; {
		select {
		case err = <-ended:
			live = true
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			r.front.Orders.Close()
			err = <-ended
			return o, errors.Join(err, fmt.Errorf("%d of %d watches live, %d refused, %d failed (%s): %w",
				o.done.Opened, r.clients, o.done.Refused, o.done.Failed, o.done.FirstError, context.Cause(ctx)))
		}
		used, failed := meter.Read()
		err = errors.Join(err, failed)
		o.used, o.peak = used, max(o.peak, used.RSS[r.stage.Peer.Name])
	}
	o.live = o.done.LastLive.Sub(begin)
	return o, err
}
