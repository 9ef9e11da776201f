//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"time"
)

// rollingOptions are the settings of `bench rolling`.
type rollingOptions struct {
	binaries
	output

	Clients  int           // clients that watch
	Protocol protocol      // of the clients
	Streams  int           // clients that share a connection over HTTP/2
	Replicas int           // replicas of watchfan
	Objects  int           // ConfigMaps
	Rate     float64       // writes per second
	Steady   time.Duration // time before the first replacement
	Delay    time.Duration // watchfan's --shutdown-delay-duration
	Drain    time.Duration // watchfan's --drain-duration
	MaxAge   time.Duration // watchfan's --max-connection-age; 0 is none
	Seeds    bool          // replicas fill their caches from each other
}

func rollingDefaults() *rollingOptions {
	return &rollingOptions{binaries: builtBinaries,
		Clients: 3000, Protocol: http11, Streams: 10, Replicas: 3, Objects: 200, Rate: 20,
		Steady: 15 * time.Second, Delay: 3 * time.Second, Drain: 10 * time.Second, MaxAge: 90 * time.Second, Seeds: true}
}

// AddFlags adds the flags of `bench rolling`.
func (o *rollingOptions) AddFlags(fs *flag.FlagSet) {
	o.binaries.addFlags(fs)
	fs.IntVar(&o.Clients, "clients", o.Clients, "clients that watch, over TLS")
	fs.Func("protocol", "`version` of HTTP of the clients, h1 or h2 (default h1)",
		func(s string) (err error) { o.Protocol, err = parseProtocol(s); return err })
	fs.IntVar(&o.Streams, "streams-per-connection", o.Streams, "clients that share a connection over HTTP/2")
	fs.IntVar(&o.Replicas, "replicas", o.Replicas, "replicas of watchfan; each is replaced")
	fs.IntVar(&o.Objects, "objects", o.Objects, "ConfigMaps that are written in turn")
	fs.Float64Var(&o.Rate, "rate", o.Rate, "writes per second")
	fs.DurationVar(&o.Steady, "steady", o.Steady, "time before the first replacement, to measure latency")
	fs.DurationVar(&o.Delay, "shutdown-delay-duration", o.Delay, "the replicas' --shutdown-delay-duration")
	fs.DurationVar(&o.Drain, "drain-duration", o.Drain, "the replicas' --drain-duration")
	fs.DurationVar(&o.MaxAge, "max-connection-age", o.MaxAge,
		"the replicas' --max-connection-age; the run continues for 1.2 times that after the last replacement")
	fs.BoolVar(&o.Seeds, "seeds", o.Seeds, "replicas fill their caches from each other, with --seed-from")
	o.output.addFlags(fs)
}

// Validate reports options that cannot be used on this machine.
func (o *rollingOptions) Validate() error {
	switch {
	case o.Clients < 1 || o.Replicas < 1 || o.Objects < 1 || o.Rate <= 0:
		return errors.New("--clients, --replicas, --objects and --rate must be positive")
	case o.Streams < 1:
		return errors.New("--streams-per-connection must be positive")
	case o.Steady < 0 || o.Delay < 0 || o.Drain < 0 || o.MaxAge < 0:
		return errors.New("durations must not be negative")
	}
	return errors.Join(o.output.validate(), o.binaries.validate(true), raiseFileLimit(3*o.Clients))
}

func (o *rollingOptions) conditions() conditions {
	c := machineConditions()
	c.add("clients", fmt.Sprint(o.Clients))
	c.add("protocol", string(o.Protocol))
	c.add("streams-per-connection", fmt.Sprint(o.Streams))
	c.add("replicas", fmt.Sprint(o.Replicas))
	c.add("objects", fmt.Sprint(o.Objects))
	c.add("writes/s", fmt.Sprint(o.Rate))
	c.add("shutdown-delay-duration", o.Delay.String())
	c.add("drain-duration", o.Drain.String())
	c.add("max-connection-age", o.MaxAge.String())
	c.add("seeds", fmt.Sprint(o.Seeds))
	return c
}
