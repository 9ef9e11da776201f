//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// scaleOptions are the settings of `bench scale`.
type scaleOptions struct {
	binaries
	output

	Pods     []int          // in the cluster, from few to many
	Joiners  int            // clients that come at once to a lane that is not there yet
	Clients  int            // clients that join at once otherwise
	Direct   int            // the same at kube-apiserver
	Load     int            // clients that list all the time
	LoadTime time.Duration  // for which they do so
	Window   time.Duration  // time of lists that are measured by their number
	Rounds   int            // turns of each row
	Patience time.Duration  // time after which a row begins no other round
	Only     *regexp.Regexp // rows to measure, by name
}

func scaleDefaults() *scaleOptions {
	return &scaleOptions{binaries: builtBinaries,
		Pods: []int{10_000, 100_000}, Joiners: 5000, Clients: 500, Direct: 20, Load: 50, LoadTime: 5 * time.Second,
		Window: time.Second, Rounds: 3, Patience: 20 * time.Second, Only: regexp.MustCompile("")}
}

// AddFlags adds the flags of `bench scale`.
func (o *scaleOptions) AddFlags(fs *flag.FlagSet) {
	o.binaries.addFlags(fs)
	fs.Func("pods", "`numbers` of pods, multiples of "+strconv.Itoa(scaleBlock)+" (default "+join(o.Pods)+")",
		list(&o.Pods, strconv.Atoi))
	fs.IntVar(&o.Joiners, "joiners", o.Joiners, "clients that come at once to a lane that is not there yet")
	fs.IntVar(&o.Clients, "clients", o.Clients, "clients that join at once otherwise")
	fs.IntVar(&o.Direct, "direct-clients", o.Direct, "the same at kube-apiserver, which takes memory and time for each")
	fs.IntVar(&o.Load, "load", o.Load, "clients that make consistent lists, one after the other")
	fs.DurationVar(&o.LoadTime, "load-time", o.LoadTime, "time for which they do so")
	fs.DurationVar(&o.Window, "window", o.Window, "measured time of small lists")
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "turns of each row; results are medians of these rounds")
	fs.DurationVar(&o.Patience, "patience", o.Patience, "time after which a row begins no other round")
	fs.Func("only", "measure only rows with names that match this `regexp`, as 'join|memory'; "+
		"the benchmark lines have the names", func(s string) (err error) {
		o.Only, err = regexp.Compile(s)
		return err
	})
	o.output.addFlags(fs)
	fs.BoolFunc("quick", "one round with 1,000 and 5,000 pods, less than three minutes", func(string) error {
		o.Pods, o.Joiners, o.Clients, o.Rounds = []int{1000, 5000}, 500, 100, 1
		o.LoadTime, o.Window = 2*time.Second, time.Second/2
		return nil
	})
}

// Validate reports options that cannot be used on this machine.
func (o *scaleOptions) Validate() error {
	switch {
	case len(o.Pods) == 0 || slices.ContainsFunc(o.Pods, func(n int) bool { return n < 1 || n%scaleBlock != 0 }):
		return fmt.Errorf("--pods must be multiples of %d", scaleBlock)
	case o.Joiners < 1 || o.Clients < 1 || o.Direct < 1 || o.Load < 1 || o.Rounds < 1:
		return errors.New("--joiners, --clients, --direct-clients, --load and --rounds must be positive")
	case o.LoadTime < 100*time.Millisecond || o.Window < 100*time.Millisecond || o.Patience < 0:
		return errors.New("--load-time and --window must be at least 100ms, --patience not negative")
	}
	if !o.wants(func(*scaleRow) bool { return true }) {
		return fmt.Errorf("--only %s: no row has such a name", o.Only)
	}
	slices.Sort(o.Pods)
	o.Pods = slices.Compact(o.Pods)
	return errors.Join(o.output.validate(), o.binaries.validate(true), raiseFileLimit(max(o.Joiners, o.Clients, o.Load)))
}

// wants reports whether a row of a kind is to be measured.
func (o *scaleOptions) wants(kind func(*scaleRow) bool) bool {
	for i := range scaleRows {
		if kind(&scaleRows[i]) && o.Only.MatchString(scaleRows[i].name) {
			return true
		}
	}
	return false
}

func (o *scaleOptions) conditions() conditions {
	c := machineConditions()
	c.add("pods", join(o.Pods))
	c.add("pods-per-node", fmt.Sprint(scalePerNode))
	c.add("joiners", fmt.Sprint(o.Joiners))
	c.add("clients", fmt.Sprint(o.Clients))
	c.add("direct-clients", fmt.Sprint(o.Direct))
	c.add("load", fmt.Sprint(o.Load))
	c.add("load-time", o.LoadTime.String())
	c.add("window", o.Window.String())
	c.add("rounds", fmt.Sprint(o.Rounds))
	c.add("patience", o.Patience.String())
	return c
}
