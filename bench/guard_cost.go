//go:build linux

package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/proxy/gate/consumers"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
)

// Units of the attribution of watchfan's CPU.
const (
	unitAlone      = "cpu-ns/request"        // of watchfan, while it has only these requests
	unitAttributed = "attributed-ns/request" // of watchfan by its model, beside another program
	unitOfMeasured = "x-measured"            // the program's share by the model, as a multiple of the one by unitAlone
)

func attributionSection() *report.Section {
	return &report.Section{
		Bench: "Attribution", Title: "Whose CPU",
		Note: "Two programs at a time: what watchfan attributes to the first, and what it costs alone.",
		Columns: []report.Column{
			report.Col("requests/s", unitGot, 1), report.Col("CPU µs/request alone", unitAlone, 1e-3),
			report.Col("attributed", unitAttributed, 1e-3), report.Col("of measured", unitOfMeasured, 1),
		},
	}
}

// costs returns the programs whose CPU is attributed.
func (o *guardOptions) costs(token string) (all []pattern) {
	add := func(name string, agents int, period time.Duration, target string, change func(*load.Habit)) {
		h := load.Habit{UserAgent: name + "/v1.0", Token: token, Agents: agents, Period: period, Accept: "application/json",
			Target: func(int, int) string { return target }}
		if change != nil {
			change(&h)
		}
		if name = "cost-" + name; o.Only.MatchString(name) {
			all = append(all, pattern{name, h})
		}
	}
	const anyState = "?resourceVersion=0"
	add("get", 5, 20*time.Millisecond, load.PodPath(0)+anyState, nil)
	add("connect", 5, 100*time.Millisecond, load.PodPath(0)+anyState, func(h *load.Habit) { h.Fresh = true })
	add("list", 2, 200*time.Millisecond, load.PodsPath+anyState, func(h *load.Habit) { h.Identity = true })
	add("list-gzip", 4, 100*time.Millisecond, load.PodsPath+anyState, nil)
	add("select", 2, 50*time.Millisecond, load.PodsPath+anyState+load.LabelQuery("app=none"), nil)
	add("pass", 5, 20*time.Millisecond, "/api/v1/nodes/node-1/status", nil)
	return all
}

// attribution compares watchfan's model of what programs cost with what they cost.
func (b *guardBench) attribution(ctx context.Context) error {
	b.stage.Peer = report.WatchfanTLS
	for _, p := range b.opts.costs(b.agent) {
		x := report.Sample{Peer: b.stage.Peer, Axes: report.Axes("program", p.name)}
		x.Err = b.stage.Behind(ctx, b.opts.Watchfan, b.opts.Flags, func() (err error) {
			x.Metrics, err = b.attribute(ctx, p)
			return err
		})
		if err := b.note(ctx, b.stage, "Attribution", x); err != nil {
			return err
		}
	}
	return nil
}

// attribute measures a program alone, another one alone, and both together.
func (b *guardBench) attribute(ctx context.Context, p pattern) ([]report.Metric, error) {
	_, other := b.others()
	other.Agents, other.Period = 5, 50*time.Millisecond
	var uses [3]use
	for i, habits := range [][]load.Habit{{p.Habit}, {other}, {p.Habit, other}} {
		var err error
		if uses[i], err = b.use(ctx, habits); err != nil {
			return nil, err
		}
	}
	each := func(u use) float64 { return u.cpu / float64(max(u.requests[0], 1)) }
	both := uses[2]
	first, second := float64(both.requests[0])*each(uses[0]), float64(both.requests[1])*each(uses[1])
	return []report.Metric{
		report.M(unitGot, float64(both.requests[0])/b.opts.Window.Seconds()), report.M(unitAlone, 1e9*each(uses[0])),
		report.M(unitAttributed, 1e9*both.attributed/float64(max(both.requests[0], 1))),
		report.M(unitOfMeasured, both.attributed/(both.cpu*first/(first+second))),
	}, nil
}

// use is what programs have used together in a window.
type use struct {
	requests   []int64
	cpu        float64 // of watchfan, in seconds
	attributed float64 // of that, to the first program
}

func (b *guardBench) use(ctx context.Context, habits []load.Habit) (u use, err error) {
	var all []*load.Agents
	for _, h := range habits {
		a := h.Start(ctx, b.stage.Endpoint())
		defer a.Stop()
		all = append(all, a)
	}
	read := func() (requests []int64, attributed float64, err error) {
		for _, a := range all {
			requests = append(requests, a.Done.Load())
		}
		attributed, err = b.attributed(ctx, habits[0].UserAgent)
		return requests, attributed, err
	}
	if err = load.Sleep(ctx, 3*time.Second); err != nil {
		return u, err
	}
	before, attributed, err := read()
	if err != nil {
		return u, err
	}
	meter, err := measure.StartMeter([]measure.Process{b.stage.Proxy.Process})
	if err == nil {
		err = load.Sleep(ctx, b.opts.Window)
	}
	if err != nil {
		return u, err
	}
	used, err := meter.Read()
	if err != nil {
		return u, err
	}
	u.requests, u.attributed, err = read()
	for i := range before {
		u.requests[i] -= before[i]
	}
	u.attributed -= attributed
	u.cpu = used.CPU[b.stage.Proxy.Process.Name].Seconds()
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
