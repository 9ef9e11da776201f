//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"time"
)

// rollingOptions say what is started, and with what load.
type rollingOptions struct {
	binaries
	output

	Clients  int           // that watch
	Replicas int           // of watchfan
	Objects  int           // ConfigMaps
	Rate     float64       // writes per second
	Steady   time.Duration // before the first replica is replaced
	Delay    time.Duration // watchfan's --shutdown-delay-duration
	Drain    time.Duration // watchfan's --drain-duration
	MaxAge   time.Duration // watchfan's --max-connection-age; 0 is none
}

func rollingDefaults() *rollingOptions {
	return &rollingOptions{binaries: builtBinaries,
		Clients: 3000, Replicas: 3, Objects: 200, Rate: 20, Steady: 15 * time.Second, Delay: 3 * time.Second, Drain: 10 * time.Second, MaxAge: 90 * time.Second}
}

// AddFlags adds the flags of `bench rolling`.
func (o *rollingOptions) AddFlags(fs *flag.FlagSet) {
	o.binaries.addFlags(fs)
	fs.IntVar(&o.Clients, "clients", o.Clients, "clients that watch, over TLS")
	fs.IntVar(&o.Replicas, "replicas", o.Replicas, "replicas of watchfan, each of which is replaced")
	fs.IntVar(&o.Objects, "objects", o.Objects, "ConfigMaps that are written in turn")
	fs.Float64Var(&o.Rate, "rate", o.Rate, "writes per second")
	fs.DurationVar(&o.Steady, "steady", o.Steady, "how long latency is measured before the first replica is replaced")
	fs.DurationVar(&o.Delay, "shutdown-delay-duration", o.Delay, "the replicas'")
	fs.DurationVar(&o.Drain, "drain-duration", o.Drain, "the replicas'")
	fs.DurationVar(&o.MaxAge, "max-connection-age", o.MaxAge, "the replicas'; the run goes on for a little longer than that after the last is replaced")
	o.output.addFlags(fs)
}

// Validate reports what makes the options unusable on this machine.
func (o *rollingOptions) Validate() error {
	switch {
	case o.Clients < 1 || o.Replicas < 1 || o.Objects < 1 || o.Rate <= 0:
		return errors.New("--clients, --replicas, --objects and --rate must be positive")
	case o.Steady < 0 || o.Delay < 0 || o.Drain < 0 || o.MaxAge < 0:
		return errors.New("durations must not be negative")
	}
	return errors.Join(o.output.validate(), o.binaries.validate(true), raiseFileLimit(3*o.Clients))
}

func (o *rollingOptions) conditions() conditions {
	c := machineConditions()
	c.add("clients", fmt.Sprint(o.Clients))
	c.add("replicas", fmt.Sprint(o.Replicas))
	c.add("objects", fmt.Sprint(o.Objects))
	c.add("writes/s", fmt.Sprint(o.Rate))
	c.add("shutdown-delay-duration", o.Delay.String())
	c.add("drain-duration", o.Drain.String())
	c.add("max-connection-age", o.MaxAge.String())
	return c
}
