package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
)

// Options are the settings of `bench run`: the servers, the load and the measurement. defaults
// returns the defaults.
type Options struct {
	common
	Peers   []report.Peer // in the order of their turns within a round
	Clients []int         // numbers of watchers; 0 measures the writes alone
	Rates   []load.Rate   // of writes; unpaced is as fast as possible
	Rounds  int           // turns of each peer

	Window time.Duration // measured time of one case
	Warmup time.Duration // time under load before the window

	Objects   int // ConfigMaps in the collection
	EventSize int // bytes of one watch event
	Writers   int // most writes in flight
	Behind    int // writes that watchers may be behind, on average, before unpaced writers wait; 0 is no limit

	Straight bool // latency counts from the event at a watcher straight at kube-apiserver

	Parts         []string // of partNames
	SectionRounds int      // rounds of the parts other than traffic
	AllFloors     bool     // compare every number of watchers with the floor, and not only the largest

	Offer          int         // most deliveries per second at a paced rate: more watchers get fewer events
	StalledClients int         // watchers of the stalled part, all in all
	Stalled        []int       // percentages of them that do not read
	StalledBound   int         // events that watchfan keeps for a stalled watcher
	HTTP2Clients   int         // watchers of the http2 part
	Streams        int         // watches on each of their connections
	HTTP2Idle      int         // idle watchers of the http2 part
	HTTP2Crowd     int         // the same once more, at watchfan alone
	Pods           int         // pods in the cluster
	EgressClients  int         // watchers of all objects in the egress part
	EgressRates    []load.Rate // updates that they get
	Nodes          int         // watchers of one node each
	NodesRate      load.Rate   // status updates, each for one of them
	ResyncClients  int         // clients that resync at once
	ResyncDirect   int         // the same at kube-apiserver
	ResyncScale    int         // clients to which the CPU time is scaled
	Nginx          string      // path of nginx, for the part through; "" is none
	StormClients   int         // watches that begin at once
	StormUntouched int         // watchers that get events meanwhile
}

func defaults() *Options {
	return &Options{
		common: commonDefaults(),
		Peers:  slices.Clone(report.Peers), Clients: []int{1000, 100, 0}, Rates: []load.Rate{50, load.Unpaced}, Rounds: 3,
		Window: 3 * time.Second, Warmup: time.Second,
		Objects: 96, EventSize: 1860, Writers: 16, Behind: 8,
		Parts: slices.Clone(partNames), SectionRounds: 1,
		Offer: 50_000, StalledClients: 1000, Stalled: []int{0, 1, 10}, StalledBound: 64, Pods: 5000,
		HTTP2Clients: 1000, Streams: 50, HTTP2Idle: 10_000, HTTP2Crowd: 100_000,
		EgressClients: 1000, EgressRates: []load.Rate{20},
		Nodes: 5000, NodesRate: 300,
		ResyncClients: 500, ResyncDirect: 20, ResyncScale: 5000,
		StormClients: 5000, StormUntouched: 500,
	}
}

// quick sets a short first run: the traffic alone, once, in about a minute. A later --parts
// replaces the traffic.
func (o *Options) quick() {
	o.Clients, o.Rounds, o.Window, o.Parts = []int{1000, 0}, 1, 2*time.Second, []string{partTraffic}
}

// full sets a run to publish: everything three times, with as many watchers as the machine can
// hold.
func (o *Options) full() {
	o.Clients, o.SectionRounds, o.AllFloors, o.Window = []int{20_000, 5000, 1000, 100, 0}, 3, true, 5*time.Second
	if room := load.RoomFor(); room < o.Clients[0] {
		o.Clients[0] = room / 1000 * 1000
	}
	o.ResyncClients, o.ResyncDirect = o.ResyncScale, 50
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

func (o *Options) knobs() knobs {
	return knobs{
		{"objects", &o.Objects, 1, math.MaxInt, "ConfigMaps that are updated in turn"},
		{"event-size", &o.EventSize, 0, math.MaxInt, "size of one watch event in `bytes`"},
		{"writers", &o.Writers, 1, math.MaxInt, "most writes in flight"},
		{"behind", &o.Behind, 0, math.MaxInt, "`writes` that watchers may be behind, on average, " +
			"before writers at rate max wait for them; 0 is no limit"},
		{"rounds", &o.Rounds, 1, math.MaxInt, "turns of each peer; results are medians of these rounds"},
		{"section-rounds", &o.SectionRounds, 1, math.MaxInt, "rounds of the parts other than traffic"},
		{"offer", &o.Offer, 1, math.MaxInt, "most `deliveries` per second at a paced rate; with more watchers the rate is lower"},
		{"stalled-bound", &o.StalledBound, 1, math.MaxInt,
			"`events` that watchfan keeps for a watcher that does not read; its own default takes minutes to reach"},
		{"http2-clients", &o.HTTP2Clients, 1, math.MaxInt, "watchers that share HTTP/2 connections"},
		{"streams-per-connection", &o.Streams, 1, mostStreams, "watches on each of their connections"},
		{"http2-idle", &o.HTTP2Idle, 2, math.MaxInt, "idle watchers that share HTTP/2 connections"},
		{"http2-crowd", &o.HTTP2Crowd, 2, math.MaxInt, "the same once more, at watchfan alone"},
		{"pods", &o.Pods, 1, math.MaxInt, "pods in the cluster for the parts that watch pods"},
		{"egress-clients", &o.EgressClients, 1, math.MaxInt, "watchers of all pods in the part egress"},
		{"nodes", &o.Nodes, 1, math.MaxInt, "watchers that each select one node"},
		{"resync-clients", &o.ResyncClients, 1, math.MaxInt, "clients that resync at once"},
		{"resync-direct", &o.ResyncDirect, 1, math.MaxInt, "clients that resync at once at kube-apiserver"},
		{"storm-clients", &o.StormClients, 1, math.MaxInt, "watches that begin at once"},
		{"storm-untouched", &o.StormUntouched, 1, math.MaxInt, "watchers that get events meanwhile"},
	}
}

// AddFlags adds the flags of `bench run`.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	o.addFlags(fs, o.knobs())
	o.addOut(fs)
	addList(fs, &o.Peers, "peers", "servers that are watched, as `name,…`", parsePeer)
	addList(fs, &o.Clients, "clients", "numbers of watchers, as `n,…`; 0 measures the writes alone",
		parseNumber(math.MaxInt))
	addList(fs, &o.Rates, "rates", "writes per second, as `n,…`; max is as fast as possible", load.ParseRate)
	fs.DurationVar(&o.Window, "window", o.Window, "measured time of each case")
	fs.DurationVar(&o.Warmup, "warmup", o.Warmup, "time of each case before the measurement")
	addList(fs, &o.Parts, "parts", "parts to measure, as `name,…`", parsePart)
	addList(fs, &o.Stalled, "stalled", "`percentages` of watchers that do not read", parseNumber(99))
	addList(fs, &o.EgressRates, "egress-rates", "updates per second that they get, as `n,…`", load.ParseRate)
	fs.StringVar(&o.Nginx, "nginx", o.Nginx, "`path` of nginx, with which the part through compares; empty: without it")
	fs.BoolVar(&o.Straight, "straight", o.Straight, "count latency from the event at a watcher straight at kube-apiserver: what a server adds")
	fs.BoolFunc("quick", "traffic alone, one round with 1,000 watchers and none, about a minute",
		func(string) error { o.quick(); return nil })
	fs.BoolFunc("full", "every part three times, and up to 20,000 watchers, about an hour",
		func(string) error { o.full(); return nil })
}

// Validate reports options that cannot be used on this machine.
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
	return o.validate(o.knobs(), proxies, o.mostClients())
}

// mostClients returns the most connections that are open at once.
func (o *Options) mostClients() int {
	if len(o.Parts) == 1 && o.wants(partTraffic) {
		return o.Clients[0]
	}
	return max(o.Clients[0], o.StalledClients, o.HTTP2Clients, o.HTTP2Crowd/mostStreams+1, o.StormClients+o.StormUntouched,
		o.EgressClients, o.Nodes, o.ResyncClients, o.ResyncDirect)
}

func parsePeer(s string) (report.Peer, error) {
	for _, p := range report.Peers {
		if p.String() == s {
			return p, nil
		}
	}
	return report.Peer{}, fmt.Errorf("peer %q: want one of %s", s, join(report.Peers))
}

// parseNumber parses a number from 0 on.
func parseNumber(most int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err == nil && (n < 0 || n > most) {
			err = fmt.Errorf("%d is not from 0 to %d", n, most)
		}
		return n, err
	}
}

func (o *Options) conditions() report.Conditions {
	c := o.knobs().conditions()
	c.Add("window", o.Window.String())
	c.Add("parts", strings.Join(o.Parts, ","))
	c.Add("straight", fmt.Sprint(o.Straight))
	c.Add("open-files", fmt.Sprint(load.RoomFor()+load.OtherFiles))
	return c
}
