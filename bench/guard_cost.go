package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/proxy/gate/consumers"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
)

func attributionSection() *report.Section {
	return &report.Section{
		Bench: "Attribution", Title: "Whose CPU",
		Note: "What watchfan attributes to a program beside one that gets what passes through, and what both cost alone. " +
			"Requests of watches are events.",
		Columns: []report.Column{
			report.Col("requests/s", "answered/s", 1), report.Col("CPU µs/request alone", "cpu-ns/request", 1e-3),
			report.Col("attributed", "attributed-ns/request", 1e-3), report.Col("of measured", "x-measured", 1),
		},
	}
}

// A costly program asks watchfan for something until it is stopped. done returns how often it has got it.
type costly struct {
	name, agent string
	start       func(context.Context) (done func() int64, stop func(), err error)
}

func (b *guardBench) habit(name string, h load.Habit) costly {
	return costly{name, h.UserAgent, func(ctx context.Context) (func() int64, func(), error) {
		a := h.Start(ctx, b.stage.Endpoint())
		return a.Done.Load, func() { a.Stop() }, nil
	}}
}

// Of the programs that watch.
const (
	costlyWatches = 200
	costlyWrites  = 20 // a second
)

// watches is a program with watches, while their objects change. They have a connection each, or share them.
func (b *guardBench) watches(name string, over *load.Multiplex) costly {
	return costly{name, load.Name, func(ctx context.Context) (func() int64, func(), error) {
		f, err := b.stage.NewFleet(load.Everything)
		if err != nil {
			return nil, nil, err
		}
		f.H2 = over
		if err = f.Grow(ctx, costlyWatches, b.stage.Book.Seqs); err != nil {
			f.Close()
			return nil, nil, err
		}
		stop := b.stage.Load(ctx, f, costlyWrites)
		return func() int64 { return int64(f.Read().Deliveries) }, func() { _ = stop(); f.Close() }, nil
	}}
}

// alwaysPasses is a path that no cache answers, whatever there is in one.
const alwaysPasses = "/api/v1/nodes/node-1/status"

// often is a program that asks for one thing 250 times a second.
func (b *guardBench) often(name, target string) load.Habit {
	return load.Habit{UserAgent: name + "/v1.0", Token: b.agent, Clients: 5, Period: 20 * time.Millisecond, Gzip: true,
		Target: func(int, int) string { return target }}
}

// costs returns the programs whose CPU is attributed.
func (b *guardBench) costs() (all []costly) {
	add := func(c costly) {
		if b.Only.MatchString(c.name) {
			all = append(all, c)
		}
	}
	habit := func(name, target string, change func(*load.Habit)) {
		h := b.often(name, target)
		change(&h)
		add(b.habit("cost-"+name, h))
	}
	plain := func(*load.Habit) {}
	const anyState = "?resourceVersion=0"
	habit("get", load.PodPath(0)+anyState, plain)
	habit("connect", load.PodPath(0)+anyState, func(h *load.Habit) { h.Fresh = true })
	habit("list", load.PodsPath+anyState, func(h *load.Habit) { h.Gzip, h.Clients, h.Period = false, 2, 200*time.Millisecond })
	habit("list-gzip", load.PodsPath+anyState, plain)
	habit("select", load.PodsPath+anyState+load.LabelQuery("app=none"), plain)
	habit("pass", alwaysPasses, plain)
	habit("newest", "", func(h *load.Habit) {
		h.Target = func(_, n int) string {
			if n == 0 {
				return load.PodPath(0) + anyState // begins a cache
			}
			return load.PodPath(0)
		}
	})
	habit("write", "/api/v1/nodes/node-2", func(h *load.Habit) { h.Patch = `{"metadata":{"labels":{"at":"%d"}}}` })
	add(b.watches("cost-watch", nil))
	add(b.watches("cost-watch-http2", &load.Multiplex{Streams: 50, Flow: load.ClientGoSteps}))
	return all
}

// attribution compares watchfan's model of what programs cost with what they cost.
func (b *guardBench) attribution(ctx context.Context) error {
	b.stage.Peer = report.WatchfanTLS
	for _, c := range b.costs() {
		x := report.Sample{Peer: b.stage.Peer, Axes: report.Axes("program", c.name)}
		x.Err = b.stage.Behind(ctx, b.Watchfan, b.Flags, func() (err error) {
			x.Metrics, err = b.attribute(ctx, c)
			return err
		})
		if err := b.note(ctx, b.stage, "Attribution", x); err != nil {
			return err
		}
	}
	return nil
}

// attribute measures nothing, a program alone, another one alone, and both together.
func (b *guardBench) attribute(ctx context.Context, c costly) ([]report.Metric, error) {
	other := b.habit("other", b.often("other", alwaysPasses))
	var uses [4]use
	for i, all := range [][]costly{{}, {c}, {c, other}, {other}} { // both between the two, as a machine grows slower
		var err error
		if uses[i], err = b.use(ctx, all); err != nil {
			return nil, err
		}
	}
	idle, both := uses[0].cpu, uses[2]
	each := func(u use) float64 { return max(u.cpu-idle, 0) / float64(max(u.requests[0], 1)) }
	first, second := float64(both.requests[0])*each(uses[1]), float64(both.requests[1])*each(uses[3])
	return []report.Metric{
		report.M("answered/s", float64(both.requests[0])/b.Window.Seconds()), report.M("cpu-ns/request", 1e9*each(uses[1])),
		report.M("attributed-ns/request", 1e9*both.attributed/float64(max(both.requests[0], 1))),
		report.M("x-measured", both.attributed/((both.cpu-idle)*first/(first+second))),
	}, nil
}

// use is what programs have used together in a window.
type use struct {
	requests   []int64
	cpu        float64 // of watchfan, in seconds
	attributed float64 // of that, to the first program
}

func (b *guardBench) use(ctx context.Context, all []costly) (u use, err error) {
	agent, counts := "", []func() int64{}
	for _, c := range all {
		done, stop, err := c.start(ctx)
		if err != nil {
			return u, err
		}
		defer stop()
		counts = append(counts, done)
		agent = all[0].agent
	}
	if err = load.Sleep(ctx, 3*time.Second); err != nil {
		return u, err
	}
	attributed, err := b.attributed(ctx, agent)
	if err != nil {
		return u, err
	}
	used, err := metered(b.stage, func() error {
		for _, done := range counts {
			u.requests = append(u.requests, -done())
		}
		err := load.Sleep(ctx, b.Window)
		for i, done := range counts {
			if u.requests[i] += done(); u.requests[i] == 0 {
				err = errors.Join(err, fmt.Errorf("%s got no answers", all[i].name))
			}
		}
		return err
	})
	if err != nil {
		return u, err
	}
	u.cpu = used.CPU[b.stage.Peer.Name].Seconds()
	u.attributed, err = b.attributed(ctx, agent)
	u.attributed -= attributed
	return u, err
}

// attributed returns the CPU time that a program has cost by watchfan's model, in seconds.
func (b *guardBench) attributed(ctx context.Context, agent string) (seconds float64, err error) {
	var d diagnose.DebugConsumers
	page, err := b.stage.Proxy.Admin.GetAs(ctx, diagnose.ConsumersPath, "application/json")
	if err == nil {
		err = json.Unmarshal(page, &d)
	}
	for _, c := range d.Consumers {
		if c.Program == consumers.ProgramOf(agent) {
			seconds += c.Total.CPUSeconds
		}
	}
	return seconds, err
}
