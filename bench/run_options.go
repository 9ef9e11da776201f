package main

import (
	"errors"
	"flag"
	"math"
	"slices"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
)

// Options are the settings of `bench run`: the servers, the load and the measurement. The flags say what each is.
type Options struct {
	common
	Peers          list[report.Peer] // in the order of their turns within a round
	Clients        list[int]         // from many to few
	Rates          list[load.Rate]
	Window, Warmup time.Duration

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
	resyncScale    = 5000           // clients to which the CPU time of the part resync is scaled
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
	o.ResyncClients, o.ResyncDirect = resyncScale, 50
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
	addList(fs, &o.Peers, "peers", slices.Clone(report.Peers), "servers that are watched, as `name,…`", oneOf(report.Peers))
	addList(fs, &o.Clients, "clients", []int{1000, 100, 0}, "numbers of watchers, as `n,…`; 0 measures the writes alone",
		between(0, math.MaxInt))
	addList(fs, &o.Rates, "rates", []load.Rate{50, load.Unpaced}, "writes per second, as `n,…`; max is as fast as possible", load.ParseRate)
	fs.DurationVar(&o.Window, "window", 3*time.Second, "measured time of each case")
	fs.DurationVar(&o.Warmup, "warmup", time.Second, "time of each case before the measurement")
	addNumber(fs, &o.Objects, "objects", 96, 1, "ConfigMaps that are updated in turn")
	addNumber(fs, &o.EventSize, "event-size", 1860, 0, "size of one watch event in `bytes`")
	addNumber(fs, &o.Writers, "writers", 16, 1, "most writes in flight")
	addNumber(fs, &o.Behind, "behind", 8, 0, "`writes` that watchers may be behind, on average, "+
		"before writers at rate max wait for them; 0 is no limit")
	addNumber(fs, &o.Offer, "offer", 50_000, 1, "most `deliveries` per second at a paced rate; with more watchers the rate is lower")

	addList(fs, &o.Parts, "parts", slices.Clone(partNames), "parts to measure, as `name,…`", oneOf(partNames))
	addNumber(fs, &o.Rounds, "rounds", 3, 1, "turns of each peer; results are medians of these rounds")
	addNumber(fs, &o.SectionRounds, "section-rounds", 1, 1, "rounds of the parts other than traffic")
	fs.BoolFunc("quick", "traffic alone, one round with 1,000 watchers and none, about a minute", o.quick)
	fs.BoolFunc("full", "every part three times, and up to 20,000 watchers, about an hour", o.full)

	addList(fs, &o.Stalled, "stalled", []int{0, 1, 10}, "`percentages` of watchers that do not read", between(0, 99))
	addNumber(fs, &o.StalledBound, "stalled-bound", 64, 1,
		"`events` that watchfan keeps for a watcher that does not read; its own default takes minutes to reach")
	addNumber(fs, &o.HTTP2Clients, "http2-clients", 1000, 1, "watchers that share HTTP/2 connections")
	addSetting(fs, &o.Streams, "streams-per-connection", 50, "watches on each of their connections", between(1, mostStreams))
	addNumber(fs, &o.HTTP2Idle, "http2-idle", 10_000, 2, "idle watchers that share HTTP/2 connections")
	addNumber(fs, &o.HTTP2Crowd, "http2-crowd", 100_000, 2, "the same once more, at watchfan alone")
	fs.StringVar(&o.Nginx, "nginx", "", "`path` of nginx, with which the part through compares; empty: without it")
	addNumber(fs, &o.StormClients, "storm-clients", 5000, 1, "watches that begin at once")
	addNumber(fs, &o.StormUntouched, "storm-untouched", 500, 1, "watchers that get events meanwhile")
	addNumber(fs, &o.Pods, "pods", 5000, 1, "pods in the cluster for the parts that watch pods")
	addNumber(fs, &o.EgressClients, "egress-clients", 1000, 1, "watchers of all pods in the part egress")
	addList(fs, &o.EgressRates, "egress-rates", []load.Rate{20}, "updates per second that they get, as `n,…`", load.ParseRate)
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
