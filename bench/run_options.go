//go:build linux

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
)

// Options are the settings of `bench run`: the servers, the load and the measurement. defaults
// returns the defaults.
type Options struct {
	binaries
	output

	Peers   []peer // in the order of their turns within a round
	Clients []int  // numbers of watchers; 0 measures the writes alone
	Rates   []rate // of writes; unpaced is as fast as possible
	Rounds  int    // turns of each peer

	Window time.Duration // measured time of one case
	Warmup time.Duration // time under load before the window

	Objects   int  // ConfigMaps in the collection
	EventSize int  // bytes of one watch event
	Writers   int  // most writes in flight
	Behind    int  // writes that watchers may be behind, on average, before unpaced writers wait; 0 is no limit
	OwnBehind int  // the same for watchfan's watchers, in the parts traffic, http2 and egress; 0 is Behind
	Readers   int  // goroutines that read watches
	Nice      int  // nice value of those; negative needs root
	Mixed     bool // half of the watchers have selectors

	Parts         []string // of partNames
	SectionRounds int      // rounds of the parts other than traffic
	AllFloors     bool     // compare every number of watchers with the floor, and not only the largest

	Offer          int           // most deliveries per second at a paced rate: more watchers get fewer events
	StalledClients int           // watchers of the stalled part, all in all
	Stalled        []int         // percentages of them that do not read
	StalledBound   int           // events that watchfan keeps for a stalled watcher
	FlushInterval  time.Duration // watchfan's --flush-interval, in the traffic part
	Crowd          int           // idle plaintext watchers
	HTTP2Clients   int           // watchers of the http2 part
	Streams        int           // watches on each of their connections
	HTTP2Idle      int           // idle watchers of the http2 part
	HTTP2Crowd     int           // idle watchers of the http2crowd part
	Pods           int           // pods in the cluster
	EgressClients  int           // watchers of all objects in the egress part
	Object         string        // that they watch: pods or EndpointSlices
	EgressRates    []rate        // updates that they get
	Protocols      []protocol    // that they speak
	Lean           []int         // percentages of them without managed fields
	Nodes          int           // watchers of one node each
	NodesRate      rate          // status updates, each for one of them
	ResyncClients  int           // clients that resync at once
	ResyncDirect   int           // the same at kube-apiserver
	ResyncScale    int           // clients to which the CPU time is scaled
	StormClients   int           // watches that begin at once
	StormUntouched int           // watchers that get events meanwhile
}

// A rate is a number of writes per second; 0 is as fast as possible.
type rate float64

const unpaced = rate(0)

func (r rate) String() string {
	if r == unpaced {
		return "max"
	}
	return strconv.FormatFloat(float64(r), 'g', -1, 64)
}

func defaults() *Options {
	return &Options{
		binaries: builtBinaries,
		Peers:    slices.Clone(peers), Clients: []int{1000, 100, 0}, Rates: []rate{50, unpaced}, Rounds: 3,
		Window: 3 * time.Second, Warmup: time.Second,
		Objects: 96, EventSize: 1860, Writers: 16, Behind: 8, Readers: 1,
		Parts: slices.Clone(partNames), SectionRounds: 1,
		Offer: 50_000, StalledClients: 1000, Stalled: []int{0, 1, 10}, StalledBound: 64, Crowd: 50_000, Pods: 5000,
		HTTP2Clients: 1000, Streams: 50, HTTP2Idle: 10_000, HTTP2Crowd: 100_000,
		EgressClients: 1000, Object: objectPods, EgressRates: []rate{20}, Protocols: []protocol{http11}, Lean: []int{0},
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
	if room := roomFor(); room < o.Clients[0] {
		o.Clients[0] = room / 1000 * 1000
	}
	o.ResyncClients, o.ResyncDirect = o.ResyncScale, 50
}

// offered returns the rate for a number of watchers where r is asked for: Offer limits it.
func (o *Options) offered(r rate, watchers int) rate {
	if r == unpaced || watchers == 0 || float64(r)*float64(watchers) <= float64(o.Offer) {
		return r
	}
	return rate(max(math.Round(100*float64(o.Offer)/float64(watchers)), 1) / 100) // 0 is unpaced
}

// behind returns how many writes the watchers of a peer may be behind.
func (o *Options) behind(p peer) int {
	if p != direct && o.OwnBehind > 0 {
		return o.OwnBehind
	}
	return o.Behind
}

// pace returns the first rate that is not unpaced.
func (o *Options) pace() rate {
	for _, r := range o.Rates {
		if r != unpaced {
			return r
		}
	}
	return 50
}

// AddFlags adds the flags of `bench run`.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	o.addServerFlags(fs)
	fs.Func("peers", "servers that are watched, as `name,…` (default "+join(o.Peers)+")", list(&o.Peers, parsePeer))
	fs.Func("clients", "numbers of watchers, as `n,…`; 0 measures the writes alone (default "+join(o.Clients)+")",
		list(&o.Clients, strconv.Atoi))
	fs.Func("rates", "writes per second, as `n,…`; max is as fast as possible (default "+join(o.Rates)+")",
		list(&o.Rates, parseRate))
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "turns of each peer; results are medians of these rounds")
	fs.DurationVar(&o.Window, "window", o.Window, "measured time of each case")
	fs.DurationVar(&o.Warmup, "warmup", o.Warmup, "time of each case before the measurement")
	o.output.addFlags(fs)
	fs.Func("parts", "parts to measure, of "+join(partNames)+", as `name,…` (default all)", list(&o.Parts, parsePart))
	fs.IntVar(&o.SectionRounds, "section-rounds", o.SectionRounds, "rounds of the parts other than traffic")
	fs.IntVar(&o.Offer, "offer", o.Offer,
		"most `deliveries` per second at a paced rate; with more watchers the rate is lower")
	fs.Func("stalled", "`percentages` of watchers that do not read (default "+join(o.Stalled)+")",
		list(&o.Stalled, strconv.Atoi))
	fs.DurationVar(&o.FlushInterval, "flush-interval", o.FlushInterval, "watchfan's --flush-interval, in the traffic part")
	fs.IntVar(&o.StalledBound, "stalled-bound", o.StalledBound,
		"`events` that watchfan keeps for a watcher that does not read; its own default takes minutes to reach")
	fs.IntVar(&o.Crowd, "crowd", o.Crowd, "idle plaintext watchers, or as many as the limit on open files allows")
	fs.IntVar(&o.HTTP2Clients, "http2-clients", o.HTTP2Clients, "watchers that share HTTP/2 connections")
	fs.IntVar(&o.Streams, "streams-per-connection", o.Streams, "watches on each of their connections")
	fs.IntVar(&o.HTTP2Idle, "http2-idle", o.HTTP2Idle, "idle watchers that share HTTP/2 connections")
	fs.IntVar(&o.HTTP2Crowd, "http2-crowd", o.HTTP2Crowd, "the same in the part crowd")
	fs.IntVar(&o.Pods, "pods", o.Pods, "pods in the cluster for the parts that watch pods")
	fs.IntVar(&o.EgressClients, "egress-clients", o.EgressClients, "watchers of all objects in the part egress")
	fs.StringVar(&o.Object, "egress-object", o.Object, "`resource` that they watch: "+objectPods+" or "+objectSlices)
	fs.Func("egress-rates", "updates per second that they get, as `n,…` (default "+join(o.EgressRates)+")",
		list(&o.EgressRates, parseRate))
	fs.Func("egress-protocols", "versions of HTTP that they speak, as `name,…`; h2 is over TLS alone (default "+
		join(o.Protocols)+")", list(&o.Protocols, parseProtocol))
	fs.Func("lean", "`percentages` of them that ask for objects without managed fields (default "+join(o.Lean)+")",
		list(&o.Lean, strconv.Atoi))
	fs.IntVar(&o.Nodes, "nodes", o.Nodes, "watchers that each select one node")
	fs.IntVar(&o.ResyncClients, "resync-clients", o.ResyncClients, "clients that resync at once")
	fs.IntVar(&o.ResyncDirect, "resync-direct", o.ResyncDirect, "clients that resync at once at kube-apiserver")
	fs.IntVar(&o.StormClients, "storm-clients", o.StormClients, "watches that begin at once")
	fs.IntVar(&o.StormUntouched, "storm-untouched", o.StormUntouched, "watchers that get events meanwhile")
	fs.BoolFunc("quick", "traffic alone, one round with 1,000 watchers and none, about a minute",
		func(string) error { o.quick(); return nil })
	fs.BoolFunc("full", "every part three times, and up to 20,000 watchers, about an hour",
		func(string) error { o.full(); return nil })
}

// addServerFlags adds the flags that `bench demo` has too.
func (o *Options) addServerFlags(fs *flag.FlagSet) {
	o.binaries.addFlags(fs)
	fs.IntVar(&o.Objects, "objects", o.Objects, "ConfigMaps that are updated in turn")
	fs.IntVar(&o.EventSize, "event-size", o.EventSize, "size of one watch event in `bytes`")
	fs.IntVar(&o.Writers, "writers", o.Writers, "most writes in flight")
	fs.IntVar(&o.OwnBehind, "watchfan-behind", o.OwnBehind,
		"`writes` that watchfan's watchers may be behind in the parts traffic, http2 and egress: "+
			"it buffers more than ten; 0 is --behind")
	fs.IntVar(&o.Behind, "behind", o.Behind,
		"`writes` that watchers may be behind, on average, before writers at rate max wait for them; 0 is no limit")
	fs.IntVar(&o.Readers, "readers", o.Readers, "goroutines that read the watches")
	fs.IntVar(&o.Nice, "reader-nice", o.Nice,
		"nice `value` of those: -15 has them read as soon as clients with machines of their own, and needs root")
	fs.BoolVar(&o.Mixed, "mixed", o.Mixed, "half of the watchers have selectors; the others see everything")
}

func (o *Options) readers() readers { return readers{o.Readers, o.Nice} }

// Validate reports options that cannot be used on this machine. It raises the limit on open files
// to the number that they need.
func (o *Options) Validate() error {
	switch {
	case len(o.Peers) == 0 || len(o.Clients) == 0 || len(o.Rates) == 0:
		return errors.New("--peers, --clients and --rates must not be empty")
	case o.Rounds < 1 || o.Window < 100*time.Millisecond || o.Warmup < 0:
		return errors.New("--rounds must be positive, --window at least 100ms, --warmup not negative")
	case o.Behind < 0 || o.OwnBehind < 0 || o.EventSize < 0 || o.FlushInterval < 0:
		return errors.New("--behind, --watchfan-behind, --event-size and --flush-interval must not be negative")
	case o.Objects < 1 || o.Writers < 1 || o.Readers < 1:
		return errors.New("--objects, --writers and --readers must be positive")
	case o.Nice < -20 || o.Nice > 19:
		return errors.New("--reader-nice must be from -20 to 19")
	case slices.Min(o.Clients) < 0 || slices.Min(o.Rates) < 0:
		return errors.New("--clients and --rates must not be negative")
	case o.SectionRounds < 1 || o.Offer < 1 || o.Crowd < 2 || o.StalledBound < 1:
		return errors.New("--section-rounds, --offer and --stalled-bound must be positive, --crowd at least 2")
	case len(o.Stalled) > 0 && (slices.Min(o.Stalled) < 0 || slices.Max(o.Stalled) > 99):
		return errors.New("--stalled must be percentages from 0 to 99")
	case o.Pods < 1 || o.EgressClients < 1 || o.Nodes < 1 || o.ResyncClients < 1 || o.ResyncDirect < 1:
		return errors.New("--pods, --egress-clients, --nodes, --resync-clients and --resync-direct must be positive")
	case o.HTTP2Clients < 1 || o.HTTP2Idle < 2 || o.HTTP2Crowd < 2:
		return errors.New("--http2-clients must be positive, --http2-idle and --http2-crowd at least 2")
	case o.Streams < 1 || o.Streams > mostStreams:
		return fmt.Errorf("--streams-per-connection must be from 1 to %d", mostStreams)
	case o.StormClients < 1 || o.StormUntouched < 1:
		return errors.New("--storm-clients and --storm-untouched must be positive")
	case o.Object != objectPods && o.Object != objectSlices:
		return fmt.Errorf("--egress-object must be %s or %s", objectPods, objectSlices)
	case len(o.Lean) == 0 || slices.Min(o.Lean) < 0 || slices.Max(o.Lean) > 100:
		return errors.New("--lean must be percentages from 0 to 100")
	case o.wants("nodes") && o.Pods < min(50, o.Nodes):
		return errors.New("--pods must be at least 50, or --nodes if that is less: each write is for the pod of a node")
	}
	slices.Sort(o.Clients)
	slices.Reverse(o.Clients) // a session measures memory when the most watchers come, and then closes some
	proxies := slices.ContainsFunc(o.Peers, func(p peer) bool { return p != direct })
	if err := errors.Join(o.output.validate(), o.binaries.validate(proxies)); err != nil {
		return err
	}
	return raiseFileLimit(o.mostClients())
}

// mostClients returns the most connections that are open at once. The crowd does not count: it
// opens as many as it can.
func (o *Options) mostClients() int {
	most := 0
	if o.wants(partTraffic) {
		most = o.Clients[0]
	}
	for _, part := range parts {
		if o.wants(part.name) {
			most = max(most, part.most(o))
		}
	}
	return most
}

func parsePeer(s string) (peer, error) {
	for _, p := range peers {
		if p.String() == s {
			return p, nil
		}
	}
	return peer{}, fmt.Errorf("peer %q: want one of %s", s, join(peers))
}

func parseRate(s string) (rate, error) {
	if s == unpaced.String() {
		return unpaced, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && !(f > 0 && f <= 1e6) {
		err = errors.New("out of range")
	}
	if err != nil {
		return 0, fmt.Errorf("rate %q: want max or a number up to 1e6", s)
	}
	return rate(f), nil
}

func newConditions(o *Options) conditions {
	c := machineConditions()
	c.add("event-bytes", fmt.Sprint(o.EventSize))
	c.add("objects", fmt.Sprint(o.Objects))
	c.add("writers", fmt.Sprint(o.Writers))
	c.add("behind", fmt.Sprint(o.Behind))
	c.add("watchfan-behind", fmt.Sprint(o.OwnBehind))
	c.add("readers", fmt.Sprint(o.Readers))
	c.add("reader-nice", fmt.Sprint(o.Nice))
	c.add("mixed-selectors", fmt.Sprint(o.Mixed))
	c.add("window", o.Window.String())
	c.add("rounds", fmt.Sprint(o.Rounds))
	c.add("parts", strings.Join(o.Parts, ","))
	c.add("section-rounds", fmt.Sprint(o.SectionRounds))
	c.add("flush-interval", o.FlushInterval.String())
	c.add("offer", fmt.Sprint(o.Offer))
	c.add("stalled-bound", fmt.Sprint(o.StalledBound))
	c.add("streams-per-connection", fmt.Sprint(o.Streams))
	c.add("pods", fmt.Sprint(o.Pods))
	c.add("open-files", fmt.Sprint(roomFor()+otherFiles))
	return c
}
