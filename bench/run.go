package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// Options are the settings of `bench run`: the servers, the load and the measurement. The flags say what each is.
type Options struct {
	common
	Peers          list[report.Peer] // in the order of their turns within a round
	Clients        list[int]         // from many to few
	Rates          list[load.Rate]
	Window, Warmup time.Duration
	Straight       bool

	Parts                 list[string]
	Rounds, SectionRounds int
	AllFloors             bool // compare every number of watchers with the floor, and not only the largest

	Objects, EventSize, Writers, Behind, Offer   int
	Stalled                                      list[int]
	StalledBound                                 int
	HTTP2Clients, Streams, HTTP2Idle, HTTP2Crowd int
	Nginx                                        string
	StormClients, StormUntouched                 int
	Pods, EgressClients, Nodes                   int
	EgressRates                                  list[load.Rate]
	ResyncClients, ResyncDirect                  int
}

const (
	stalledClients = 1000           // of the part stalled, all in all
	nodesRate      = load.Rate(300) // status updates, each for one of the nodes
)

// newOptions returns the defaults.
func newOptions() *Options {
	o := new(Options)
	o.AddFlags(new(flag.FlagSet))
	return o
}

// quick sets a short first run: the traffic alone, once, in about a minute. A later --parts
// replaces the traffic.
func (o *Options) quick(string) error {
	o.Clients, o.Rounds, o.Window, o.Parts = []int{1000, 0}, 1, 2*time.Second, []string{partTraffic}
	return nil
}

// full sets a run to publish: everything three times, with as many watchers as the machine can
// hold.
func (o *Options) full(string) error {
	o.Clients, o.SectionRounds, o.AllFloors, o.Window = []int{20_000, 5000, 1000, 100, 0}, 3, true, 5*time.Second
	if room := load.RoomFor(); room < o.Clients[0] {
		o.Clients[0] = room / 1000 * 1000
	}
	o.ResyncClients, o.ResyncDirect = 5000, 50
	return nil
}

// offered returns the rate for a number of watchers where r is asked for: Offer limits it.
func (o *Options) offered(r load.Rate, watchers int) load.Rate {
	if r == load.Unpaced || watchers == 0 || float64(r)*float64(watchers) <= float64(o.Offer) {
		return r
	}
	return load.Rate(max(math.Round(100*float64(o.Offer)/float64(watchers)), 1) / 100) // 0 is unpaced
}

// pace returns the first rate that is not unpaced.
func (o *Options) pace() load.Rate {
	for _, r := range o.Rates {
		if r != load.Unpaced {
			return r
		}
	}
	return 50
}

func (o *Options) AddFlags(fs *flag.FlagSet) {
	o.addOut(fs)
	addList(fs, &o.Peers, "peers", report.Peers, "servers that are watched, as `name,…`", oneOf(report.Peers))
	addList(fs, &o.Clients, "clients", []int{1000, 100, 0}, "numbers of watchers, as `n,…`; 0 measures the writes alone",
		between(0, math.MaxInt))
	addList(fs, &o.Rates, "rates", []load.Rate{50, load.Unpaced}, "writes per second, as `n,…`, or max",
		load.ParseRate)
	fs.DurationVar(&o.Window, "window", 3*time.Second, "measured time of each case")
	fs.DurationVar(&o.Warmup, "warmup", time.Second, "time of each case before the measurement")
	fs.BoolVar(&o.Straight, "straight", false,
		"count latency from the event at a watcher straight at kube-apiserver: what a server adds")
	addNumber(fs, &o.Objects, "objects", 96, 1, "ConfigMaps that are updated in turn")
	addNumber(fs, &o.EventSize, "event-size", 1860, 0, "size of one watch event in `bytes`")
	addNumber(fs, &o.Writers, "writers", 16, 1, "most writes in flight")
	addNumber(fs, &o.Behind, "behind", 8, 0, "`writes` that watchers may be behind, on average, "+
		"before writers at rate max wait for them; 0 is no limit")
	addNumber(fs, &o.Offer, "offer", 50_000, 1,
		"most `deliveries` per second at a paced rate: more watchers get fewer events")

	addList(fs, &o.Parts, "parts", partNames, "parts to measure, as `name,…`", oneOf(partNames))
	addNumber(fs, &o.Rounds, "rounds", 3, 1, "turns of each peer; results are medians of these rounds")
	addNumber(fs, &o.SectionRounds, "section-rounds", 1, 1, "rounds of the parts other than traffic")
	fs.BoolFunc("quick", "traffic alone, one round with 1,000 watchers and none, about a minute", o.quick)
	fs.BoolFunc("full", "every part three times, and up to 20,000 watchers, about an hour", o.full)

	addList(fs, &o.Stalled, "stalled", []int{0, 1, 10}, "`percentages` of watchers that do not read", between(0, 99))
	addNumber(fs, &o.StalledBound, "stalled-bound", 64, 1,
		"`events` that watchfan keeps for a watcher that does not read; its own default takes minutes to reach")
	addNumber(fs, &o.HTTP2Clients, "http2-clients", 1000, 1, "watchers that share HTTP/2 connections")
	addSetting(fs, &o.Streams, "streams-per-connection", 50, "watches on each connection", between(1, mostStreams))
	addNumber(fs, &o.HTTP2Idle, "http2-idle", 10_000, 2, "idle watchers that share HTTP/2 connections")
	addNumber(fs, &o.HTTP2Crowd, "http2-crowd", 100_000, 2, "the same once more, at watchfan alone")
	fs.StringVar(&o.Nginx, "nginx", "", "`path` of nginx, with which the part through compares; empty: without it")
	addNumber(fs, &o.StormClients, "storm-clients", 5000, 1, "watches that begin at once")
	addNumber(fs, &o.StormUntouched, "storm-untouched", 500, 1, "watchers that get events meanwhile")
	addNumber(fs, &o.Pods, "pods", 5000, 1, "pods in the cluster for the parts that watch pods")
	addNumber(fs, &o.EgressClients, "egress-clients", 1000, 1, "watchers of all pods in the part egress")
	addList(fs, &o.EgressRates, "egress-rates", []load.Rate{20}, "updates per second to them, as `n,…`", load.ParseRate)
	addNumber(fs, &o.Nodes, "nodes", 5000, 1, "watchers that each select one node")
	addNumber(fs, &o.ResyncClients, "resync-clients", 500, 1, "clients that resync at once")
	addNumber(fs, &o.ResyncDirect, "resync-direct", 20, 1, "clients that resync at once at kube-apiserver")
}

func (o *Options) Validate() error {
	switch {
	case o.Window < 100*time.Millisecond || o.Warmup < 0:
		return errors.New("--window must be at least 100ms, --warmup not negative")
	case o.wants("nodes") && o.Pods < min(50, o.Nodes):
		return errors.New("--pods must be at least 50, or --nodes if that is less: each write is for the pod of a node")
	}
	slices.Sort(o.Clients)
	slices.Reverse(o.Clients) // a session measures memory when the most watchers come, and then closes some
	proxies := slices.ContainsFunc(o.Peers, func(p report.Peer) bool { return p != report.Direct })
	return o.validate(proxies, o.mostClients())
}

// mostClients returns the most connections that are open at once.
func (o *Options) mostClients() int {
	if len(o.Parts) == 1 && o.wants(partTraffic) {
		return o.Clients[0]
	}
	return max(o.Clients[0], stalledClients, o.HTTP2Clients, o.HTTP2Crowd/mostStreams+1, o.StormClients+o.StormUntouched,
		o.EgressClients, o.Nodes, o.ResyncClients, o.ResyncDirect)
}

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
