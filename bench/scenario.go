//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Options say what is started, with what load, and how it is measured. defaults returns the ones of `bench run`.
type Options struct {
	Devcluster string // path of deploy/devcluster's binary
	Watchfan   string // path of watchfan's binary

	Peers   []peer // in the order in which they take turns within a round
	Clients []int  // numbers of watchers; 0 measures the writes alone
	Rates   []rate // of writes; unpaced is as fast as Writers go
	Rounds  int    // how often every peer has its turn

	Window time.Duration // measured time of one case
	Warmup time.Duration // load before it

	Objects   int  // ConfigMaps in the collection
	EventSize int  // bytes of one watch event
	Writers   int  // writes in flight at most
	Behind    int  // writes that watchers may be behind, on average, before unpaced writers wait; 0 is any number
	Readers   int  // goroutines that read watches
	Mixed     bool // whether watchers have different selectors

	Out string // name of the published run in bench/results; "" prints only
}

// A rate is a number of writes per second; 0 is as fast as they go.
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
		Devcluster: "bin/devcluster", Watchfan: "bin/watchfan",
		Peers: slices.Clone(peers), Clients: []int{1000, 100, 0}, Rates: []rate{50, unpaced}, Rounds: 3,
		Window: 3 * time.Second, Warmup: time.Second,
		Objects: 96, EventSize: 1860, Writers: 16, Behind: 8, Readers: 1,
	}
}

// quick is for a first look: everything once, in about a minute.
func (o *Options) quick() {
	o.Clients, o.Rounds, o.Window = []int{1000, 0}, 1, 2*time.Second
}

// AddFlags adds the flags of `bench run`.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	o.addServerFlags(fs)
	fs.Func("peers", "what watchers watch, as `name,…` (default "+join(o.Peers)+")", list(&o.Peers, parsePeer))
	fs.Func("clients", "numbers of watchers, as `n,…`; 0 measures the writes alone (default "+join(o.Clients)+")", list(&o.Clients, strconv.Atoi))
	fs.Func("rates", "writes per second, as `n,…`; max is as fast as they go (default "+join(o.Rates)+")", list(&o.Rates, parseRate))
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "how often every peer has its turn; results are medians of the rounds")
	fs.DurationVar(&o.Window, "window", o.Window, "how long each case is measured")
	fs.DurationVar(&o.Warmup, "warmup", o.Warmup, "how long each case runs before it is measured")
	fs.StringVar(&o.Out, "out", "", "also write the results to bench/results/<date>-`name`.txt")
	fs.BoolFunc("quick", "one round with 1,000 watchers and none, about a minute", func(string) error { o.quick(); return nil })
}

// addServerFlags adds those that `bench demo` has too.
func (o *Options) addServerFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Devcluster, "devcluster", o.Devcluster, "`path` of the dev cluster's binary")
	fs.StringVar(&o.Watchfan, "watchfan", o.Watchfan, "`path` of watchfan's binary")
	fs.IntVar(&o.Objects, "objects", o.Objects, "ConfigMaps that are updated in turn")
	fs.IntVar(&o.EventSize, "event-size", o.EventSize, "size of one watch event in `bytes`")
	fs.IntVar(&o.Writers, "writers", o.Writers, "writes in flight at most")
	fs.IntVar(&o.Behind, "behind", o.Behind, "`writes` that watchers may be behind, on average, before writers at rate max wait for them; 0 is any number")
	fs.IntVar(&o.Readers, "readers", o.Readers, "goroutines that read the watches")
	fs.BoolVar(&o.Mixed, "mixed", o.Mixed, "half of the watchers have label and field selectors instead of seeing everything")
}

// Validate reports what makes the options unusable on this machine, and raises the limit on open files to what they need.
func (o *Options) Validate() error {
	switch {
	case len(o.Peers) == 0 || len(o.Clients) == 0 || len(o.Rates) == 0:
		return errors.New("--peers, --clients and --rates must not be empty")
	case o.Rounds < 1 || o.Window < 100*time.Millisecond || o.Warmup < 0:
		return errors.New("--rounds must be positive, --window at least 100ms, --warmup not negative")
	case o.Behind < 0 || o.EventSize < 0:
		return errors.New("--behind and --event-size must not be negative")
	case o.Objects < 1 || o.Writers < 1 || o.Readers < 1:
		return errors.New("--objects, --writers and --readers must be positive")
	case slices.Min(o.Clients) < 0 || slices.Min(o.Rates) < 0:
		return errors.New("--clients and --rates must not be negative")
	case strings.ContainsAny(o.Out, "/\\"):
		return errors.New("--out is a name, not a path")
	}
	slices.Sort(o.Clients)
	slices.Reverse(o.Clients) // watchers leave within a session; memory is measured when they first come
	if err := executable(o.Devcluster, "make devcluster"); err != nil {
		return err
	}
	for _, p := range o.Peers {
		if p.name == "watchfan" {
			if err := executable(o.Watchfan, "make build"); err != nil {
				return err
			}
		}
	}
	return raiseFileLimit(o.Clients[0])
}

func executable(path, hint string) error {
	info, err := os.Stat(path)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("%s: not a program", path)
	}
	if err != nil {
		return fmt.Errorf("%w (build it with `%s`)", err, hint)
	}
	return nil
}

// raiseFileLimit makes room for n connections here, and in the servers, which inherit the limit.
func raiseFileLimit(n int) error {
	const others = 256
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	need := uint64(n + others)
	if limit.Max < need {
		return fmt.Errorf("%d watchers need %d open files, and this process may have %d: raise the hard limit (ulimit -Hn) first", n, need, limit.Max)
	}
	limit.Cur = limit.Max
	return os.NewSyscallError("setrlimit", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
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

// list returns a flag.Func that sets *to to a comma-separated list.
func list[T any](to *[]T, parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		*to = nil
		for item := range strings.SplitSeq(s, ",") {
			v, err := parse(strings.TrimSpace(item))
			if err != nil {
				return err
			}
			*to = append(*to, v)
		}
		return nil
	}
}

func join[T any](values []T) string {
	var s []string
	for _, v := range values {
		s = append(s, fmt.Sprint(v))
	}
	return strings.Join(s, ",")
}
