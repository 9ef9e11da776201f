//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"time"
)

// listOptions are the settings of `bench list`.
type listOptions struct {
	binaries
	output

	Pods      int            // in the cluster
	Clients   int            // connections, each with one list at a time
	Protocols []protocol     // of clients; http20 is over TLS alone
	Rounds    int            // turns of each case
	Window    time.Duration  // time after which a client begins no other list
	Warmup    time.Duration  // the same, before the window
	Only      *regexp.Regexp // cases to measure, by name
}

func listDefaults() *listOptions {
	return &listOptions{
		binaries: builtBinaries,
		Pods:     5000, Clients: 4, Rounds: 3, Window: 4 * time.Second, Warmup: time.Second,
		Only: regexp.MustCompile(""), Protocols: []protocol{http11, http20},
	}
}

// AddFlags adds the flags of `bench list`.
func (o *listOptions) AddFlags(fs *flag.FlagSet) {
	o.binaries.addFlags(fs)
	fs.IntVar(&o.Pods, "pods", o.Pods, "pods in the cluster")
	fs.IntVar(&o.Clients, "clients", o.Clients, "connections, each with one list at a time")
	fs.Func("protocol", "versions of HTTP, as `name,…`; h2 is over TLS alone (default "+join(o.Protocols)+")",
		list(&o.Protocols, parseProtocol))
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "turns of each case; results are medians of these rounds")
	fs.DurationVar(&o.Window, "window", o.Window, "measured time of each case")
	fs.DurationVar(&o.Warmup, "warmup", o.Warmup, "time of each case before the measurement")
	fs.Func("only", "measure only cases with names that match this `regexp`, as 'format=json/.*/rv=0'",
		func(s string) (err error) {
			o.Only, err = regexp.Compile(s)
			return err
		})
	o.output.addFlags(fs)
	fs.BoolFunc("quick", "one round, about three minutes", func(string) error {
		o.Rounds, o.Window = 1, 2*time.Second
		return nil
	})
}

// Validate reports options that cannot be used on this machine.
func (o *listOptions) Validate() error {
	switch {
	case o.Pods < 1 || o.Clients < 1 || o.Rounds < 1:
		return errors.New("--pods, --clients and --rounds must be positive")
	case o.Window < 100*time.Millisecond || o.Warmup < 0:
		return errors.New("--window must be at least 100ms, --warmup not negative")
	case len(o.cases()) == 0:
		return fmt.Errorf("--only %s: no case has such a name", o.Only)
	}
	return errors.Join(o.output.validate(), o.binaries.validate(true), raiseFileLimit(o.Clients))
}

// conditions returns the machine and the settings of the run.
func (o *listOptions) conditions(b *listBench) conditions {
	c := machineConditions()
	c.add("pods", fmt.Sprint(o.Pods))
	c.add("list-bytes", fmt.Sprint(b.listBytes))
	c.add("clients", fmt.Sprint(o.Clients))
	c.add("protocols", join(o.Protocols))
	c.add("window", o.Window.String())
	c.add("rounds", fmt.Sprint(o.Rounds))
	return c
}
