package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
)

// A Stage is the servers, the objects and the writer for one peer. They are fresh for each session,
// because no peer may inherit another's heap or watchers. The floor has neither cluster nor writer.
type Stage struct {
	Peer    report.Peer
	Cluster *Cluster
	Proxy   *Proxy // nil without a proxy
	Floor   *floor // nil unless it is the peer
	Coll    *load.Collection
	Writer  *load.Writer
	Book    *load.Ledger // of the floor's writes, or the writer's
}

// NewFloorStage starts a floor of n objects, beside a peer, with events of size bytes. Its HTTP/2
// connections have streams watches each; 0 is HTTP/1.1. Stop must be called.
func NewFloorStage(beside report.Peer, n, size, streams int) (*Stage, error) {
	f, job := newFloor(n), floorJob{Objects: n, EventSize: size, Streams: streams}
	var err error
	if beside.TLS {
		if job.Cert, job.Key, f.endpoint.TLS, err = floorIdentity(); err != nil {
			return nil, err
		}
	}
	if f.Helper, err = StartHelper(PriorityNormal, report.FloorBare.Name, job, &f.endpoint.Addr); err != nil {
		return nil, err
	}
	p := report.Peer{Name: report.FloorBare.Name, TLS: beside.TLS}
	return &Stage{Peer: p, Floor: f, Book: f.Ledger, Coll: load.NewCollection(load.ObjectConfigMaps, n, 0)}, nil
}

// Stage returns a stage at the cluster, with the writer of a collection that does not exist yet.
func (c *Cluster) Stage(coll *load.Collection, writers, behind int) *Stage {
	w := load.NewWriter(c.Endpoint, coll, writers, behind)
	return &Stage{Cluster: c, Coll: coll, Writer: w, Book: w.Ledger}
}

// Stop ends the servers, the proxy first.
func (s *Stage) Stop() {
	if s.Writer != nil {
		s.Writer.Client.CloseIdleConnections()
	}
	if s.Proxy != nil {
		s.Proxy.Child.Stop()
	}
	if s.Cluster != nil {
		s.Cluster.Stop()
	}
	if s.Floor != nil {
		s.Floor.Stop()
	}
}

// Behind calls do with a new watchfan in front of the cluster.
func (s *Stage) Behind(ctx context.Context, watchfan string, flags []string, do func() error) (err error) {
	if s.Proxy, err = StartProxy(ctx, watchfan, s.Cluster, flags...); err != nil {
		return err
	}
	defer func() {
		s.Proxy.Child.Stop()
		s.Proxy = nil
	}()
	return do()
}

// WithBench returns the servers of a stage and this program.
func WithBench(st *Stage) []measure.Process {
	return append([]measure.Process{{Name: load.Name, PID: os.Getpid()}}, st.Processes()...)
}

// Processes returns the servers.
func (s *Stage) Processes() (all []measure.Process) {
	if s.Floor != nil {
		return []measure.Process{s.Floor.Process()}
	}
	all = append(all, s.Cluster.Processes...)
	if s.Proxy != nil {
		all = append(all, s.Proxy.Child.Process())
	}
	return all
}

// Endpoint returns the address for the peer's watchers.
func (s *Stage) Endpoint() load.Endpoint {
	switch {
	case s.Floor != nil:
		return s.Floor.endpoint
	case s.Peer == report.Direct:
		return s.Cluster.Endpoint
	case s.Peer.TLS:
		return s.Proxy.TLS
	}
	return s.Proxy.plain
}

// NewFleet returns a fleet without watchers.
func (s *Stage) NewFleet(filters ...load.Filter) (*load.Fleet, error) {
	return load.NewFleet(s.Endpoint(), s.Coll, filters, s.Book.Acks)
}

// Alive reports an error if a server has ended.
func (s *Stage) Alive() (err error) {
	if s.Cluster != nil {
		err = s.Cluster.Child.Alive()
	}
	if s.Proxy != nil {
		err = errors.Join(err, s.Proxy.Child.Alive())
	}
	if s.Floor != nil {
		err = errors.Join(err, s.Floor.Alive())
	}
	return err
}

// Rest waits until the servers are at rest, and returns their resident memory then, in bytes. It collects
// their garbage first. A server is at rest if in one second all servers together use less than a tenth of
// a core, and each changes its resident memory by less than half a percent. After 15 s Rest returns
// in any case.
func (s *Stage) Rest(ctx context.Context) (rss map[string]int64, err error) {
	const step, patience = time.Second, 15 * time.Second
	if err := s.collectGarbage(ctx); err != nil {
		return nil, err
	}
	for start := time.Now(); ; {
		meter, err := measure.StartMeter(s.Processes())
		if err == nil {
			err = load.Sleep(ctx, step)
		}
		if err != nil {
			return nil, errors.Join(err, s.Alive())
		}
		used, err := meter.Read()
		if err != nil || atRest(&used) || time.Since(start) > patience {
			return used.RSS, errors.Join(err, s.Alive())
		}
	}
}

func atRest(used *measure.Usage) bool {
	for name, grown := range used.Grown {
		if change := float64(grown) / float64(used.RSS[name]); change > 0.005 || change < -0.005 {
			return false
		}
	}
	return report.ServersCPU(used) < used.Window/10
}

// collectGarbage collects it twice: finalizers and pools hold memory until the second time.
func (s *Stage) collectGarbage(ctx context.Context) error {
	for range 2 {
		if _, err := s.Cluster.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			return err
		}
		if s.Proxy != nil {
			if _, err := s.Proxy.Admin.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
				return err
			}
		}
	}
	return nil
}

// Load makes r writes a second in the background. stop ends it, waits for the answer to the last write, and
// returns the error that ended it earlier, if any.
func (s *Stage) Load(ctx context.Context, f *load.Fleet, r load.Rate) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	errc := make(chan error, 1)
	run := s.Writer.Run
	if s.Floor != nil {
		run = s.Floor.Run
	}
	go func() { errc <- run(ctx, f, float64(r)) }()
	return func() error {
		cancel()
		if err := <-errc; err != nil {
			return fmt.Errorf("writer: %w", err)
		}
		return nil
	}
}

// Sum adds up the series of a metric at an endpoint that have all of the labels. Its page has the Prometheus text
// format:
//
//	name{label="value",…} 3
//	name 3
func Sum(ctx context.Context, at load.Endpoint, metric string, labels ...string) (sum float64, err error) {
	page, err := at.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	series := regexp.MustCompile(`(?m)^` + metric + `(\{.*\})? (.*)$`)
	for _, m := range series.FindAllStringSubmatch(string(page), -1) {
		if slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(m[1], label) }) {
			continue
		}
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %.200q: %w", m[0], err)
		}
		sum += n
	}
	return sum, nil
}
