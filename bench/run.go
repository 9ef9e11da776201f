package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

func (o *Options) sections() []*report.Section {
	all := []*report.Section{fanoutSection(), idleSection()}
	for _, part := range parts {
		all = append(all, part.section(o))
	}
	return all
}

// run is `bench run`. It measures every peer in each round.
func (o *Options) run(ctx context.Context, p *program) (err error) {
	p.opts = o
	if o.wants(partTraffic) {
		err = p.measureTraffic(ctx)
	}
	for p.round = 1; err == nil && p.round <= o.SectionRounds; p.round++ {
		err = p.measureRound(ctx)
	}
	subtractWrites(p.section("Fanout"))
	p.section("Through").AddRatio("cpu/nginx-cpu", "cpu-ns/request", report.WatchfanTLS, report.Nginx)
	return err
}

// partTraffic is the part in which each peer has clusters of its own (traffic.go).
const partTraffic = "traffic"

// A part is a measurement of `bench run` in a cluster that all such parts share. Each part has its
// own watchfan, and the peers take turns within it.
type part struct {
	name    string
	section func(*Options) *report.Section
	object  string                                               // of the collection; "" is ConfigMaps
	flags   func(*Options) []string                              // of watchfan; nil is none
	measure func(*program, context.Context, *server.Stage) error // one peer
	after   func(*program, context.Context, *server.Stage) error // all peers; nil is nothing
}

// parts are the parts in their order: those of a collection follow one another. Each has a file of its name.
var parts = []part{
	{name: "stalled", section: stalledSection, flags: boundedBuffers, measure: (*program).stalled},
	{name: "http2", section: http2Section, flags: oneUser, measure: (*program).http2, after: (*program).http2Floor},
	{name: "through", section: throughSection, measure: (*program).through, after: (*program).throughNginx},
	{name: "storm", section: stormSection, measure: (*program).storm},
	{name: "egress", object: load.ObjectPods, section: egressSection, measure: (*program).egress},
	{name: "nodes", object: load.ObjectPods, section: nodesSection, measure: (*program).nodes},
	{name: "resync", object: load.ObjectPods, section: resyncSection, measure: (*program).resync},
}

var partNames = func() []string {
	names := []string{partTraffic}
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}()

// A program runs the parts, and holds their samples.
type program struct {
	opts     *Options // of `bench run`; nil for other commands
	start    time.Time
	say      func(format string, args ...any)
	round    int
	sections []*report.Section // in the order of the report
	settings report.Conditions
	stormy   bool          // the cluster has the objects of storms
	stage    *server.Stage // of a command with one cluster; nil before it has started
}

// newProgram returns a program that logs to w.
func newProgram(w io.Writer, settings report.Conditions, sections ...*report.Section) *program {
	p := &program{sections: sections, settings: settings, start: time.Now()}
	p.say = func(format string, args ...any) {
		fmt.Fprintf(w, "%s  round %d  %s\n", report.Clock(time.Since(p.start)), p.round, fmt.Sprintf(format, args...))
	}
	return p
}

// startStage starts the one cluster of a command.
func (p *program) startStage(ctx context.Context, devcluster string, coll *load.Collection, writers, behind int) error {
	p.say("starting a dev cluster")
	cluster, err := server.StartCluster(ctx, devcluster)
	if err == nil {
		p.stage = cluster.Stage(coll, writers, behind)
	}
	return err
}

// section returns the section with the name of its benchmarks.
func (p *program) section(bench string) *report.Section {
	return p.sections[slices.IndexFunc(p.sections, func(s *report.Section) bool { return s.Bench == bench })]
}

func (o *Options) wants(part string) bool { return slices.Contains(o.Parts, part) }

// measureRound measures the parts other than traffic that are asked for, once.
func (p *program) measureRound(ctx context.Context) error {
	wanted := slices.DeleteFunc(slices.Clone(parts), func(x part) bool { return !p.opts.wants(x.name) })
	if len(wanted) == 0 {
		return nil
	}
	p.stormy = false
	p.say("starting a dev cluster")
	cluster, err := server.StartCluster(ctx, p.opts.Devcluster)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	var st *server.Stage
	for i, part := range wanted {
		if i == 0 || part.object != wanted[i-1].object {
			coll := load.NewCollection(part.object, p.opts.Objects, p.opts.Pods)
			st = cluster.Stage(coll, p.opts.Writers, p.opts.Behind)
			defer st.Writer.Client.CloseIdleConnections()
			if err := st.Writer.Create(ctx, p.opts.EventSize, p.say); err != nil {
				return err
			}
		}
		if err := p.inTurn(ctx, st, part); err != nil {
			return err
		}
	}
	return nil
}

// inTurn measures a part at each peer in turn, with a new watchfan in front of the stage's cluster.
func (p *program) inTurn(ctx context.Context, st *server.Stage, x part) (err error) {
	all := func() error {
		for _, peer := range p.opts.Peers {
			st.Peer = peer
			if err := x.measure(p, ctx, st); err != nil {
				return errors.Join(fmt.Errorf("%v: %w", peer, err), st.Alive())
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	}
	if slices.ContainsFunc(p.opts.Peers, func(peer report.Peer) bool { return peer != report.Direct }) {
		var flags []string
		if x.flags != nil {
			flags = x.flags(p.opts)
		}
		err = st.Behind(ctx, p.opts.Watchfan, flags, all)
	} else {
		err = all()
	}
	if err == nil && x.after != nil {
		err = x.after(p, ctx, st)
	}
	return err
}

// note adds a sample to a section and logs it. It returns an error if the run cannot continue.
func (p *program) note(ctx context.Context, st *server.Stage, bench string, x report.Sample) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	x.Round = p.round
	s := p.section(bench)
	s.Add(&x)
	p.say("%s", s.Line(&x))
	if x.Err != nil && st != nil {
		return st.Alive()
	}
	return nil
}

// metered returns what the servers of a stage and this program use while do runs.
func metered(st *server.Stage, do func() error) (measure.Usage, error) {
	meter, err := measure.StartMeter(server.WithBench(st))
	if err == nil {
		err = do()
	}
	if err != nil {
		return measure.Usage{}, err
	}
	return meter.Read()
}
