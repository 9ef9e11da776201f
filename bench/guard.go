//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"regexp"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// Units of `bench guard`.
const (
	unitAsked    = "asked/s"            // requests that the agents want to make
	unitGot      = "answered/s"         // whole answers to the agents
	unitRefused  = "refused/s"          // 429 to the agents
	unitReached  = "reached/s"          // requests of any client that kube-apiserver has answered, less those of a quiet time
	unitGuardCPU = "cpu-%"              // of watchfan, in percent of a processor
	unitTheirCPU = "kube-cpu-%"         // of kube-apiserver and etcd
	unitAdminP99 = "admin-p99-ns"       // of an administrator's requests, each with a new connection
	unitAdminP50 = "admin-p50-ns"       //
	unitQuietP99 = "admin-quiet-p99-ns" // of the same without the agents
	unitOther    = "other-p50-ns"       // of another client's requests
	unitOtherOf  = "x-other-quiet"      // the same, as a multiple of that without the agents
)

// guardOptions are the settings of `bench guard`.
type guardOptions struct {
	binaries
	output

	Pods   int            // in the cluster
	Scale  int            // the agents are divided by it
	Rounds int            // turns of each pattern
	Window time.Duration  // measured time, without and with the agents
	Flags  []string       // of watchfan
	Only   *regexp.Regexp // patterns to measure, by name
}

func guardDefaults() *guardOptions {
	return &guardOptions{binaries: builtBinaries, Pods: 5000, Scale: 10, Rounds: 1, Window: 20 * time.Second,
		Only: regexp.MustCompile("")}
}

func (o *guardOptions) knobs() knobs {
	return knobs{
		{"pods", &o.Pods, 100, math.MaxInt, "pods in the cluster"},
		{"scale", &o.Scale, 1, 1000, "what the number of agents is divided by"},
		{"rounds", &o.Rounds, 1, math.MaxInt, "turns of each pattern; results are medians of these rounds"},
	}
}

// AddFlags adds the flags of `bench guard`.
func (o *guardOptions) AddFlags(fs *flag.FlagSet) {
	o.binaries.addFlags(fs)
	o.output.addFlags(fs)
	o.knobs().addFlags(fs)
	addList(fs, &o.Flags, "watchfan-flags", "`flags` of watchfan", func(s string) (string, error) { return s, nil })
	fs.DurationVar(&o.Window, "window", o.Window, "measured time, without and with the agents")
	addPattern(fs, &o.Only, "measure only patterns with names that match this `regexp`")
}

// Validate reports options that cannot be used on this machine.
func (o *guardOptions) Validate() error {
	if err := o.knobs().validate(); err != nil {
		return err
	}
	if o.Window < time.Second || len(o.patterns("")) == 0 && len((&guardBench{opts: o}).costs()) == 0 {
		return errors.New("--window must be at least 1s, and --only must match a pattern")
	}
	return errors.Join(o.output.validate(), o.binaries.validate(true), load.RaiseFileLimit(4*5000/o.Scale))
}

// guardNodes is the number of Nodes that agents read.
const guardNodes = 100

// A pattern is what agents do that have brought a cluster down, or might.
type pattern struct {
	name string
	load.Habit
}

// patterns returns the patterns, scaled, for agents with a token.
func (o *guardOptions) patterns(token string) (all []pattern) {
	habit := func(name string, agents int, period time.Duration, target func(agent, n int) string) {
		h := load.Habit{UserAgent: name + "/v1.0 (linux/amd64) kubernetes/abcdef0", Token: token, Agents: max(1, agents/o.Scale),
			Period: period, Accept: "application/json", Target: target}
		if o.Only.MatchString(name) {
			all = append(all, pattern{name, h})
		}
	}
	pod := func(agent, n int) string { return load.PodPath((agent*7919 + n*31) % o.Pods) }
	node := func(agent, n int) string { return fmt.Sprintf("/api/v1/nodes/node-%d", (agent+n)%guardNodes) }
	habit("list-all", 5000, 15*time.Second, func(int, int) string { return load.PodsPath })
	habit("get-pods", 900, time.Second, pod)
	habit("get-nodes", 58*5, 5*time.Second, node)
	habit("relist", 1000, time.Minute, func(int, int) string { return load.PodsPath + "?resourceVersion=0" })
	return all
}

func guardSection() *report.Section {
	return &report.Section{
		Bench: "Guard", Title: "Agents that ask too much",
		Note: "An administrator asks for a table of a namespace's pods, on a new connection each time. Another client gets a pod.",
		Columns: []report.Column{
			report.Col("asked/s", unitAsked, 1), report.Col("answered/s", unitGot, 1), report.Col("429/s", unitRefused, 1),
			report.Col("reached/s", unitReached, 1), report.Col("watchfan CPU %", unitGuardCPU, 1), report.Col("kube CPU %", unitTheirCPU, 1),
			report.Col("admin p50 ms", unitAdminP50, 1e-6), report.Col("p99 ms", unitAdminP99, 1e-6), report.Col("quiet p99 ms", unitQuietP99, 1e-6),
			report.Col("other p50 ms", unitOther, 1e-6), report.Col("of quiet", unitOtherOf, 1),
		},
	}
}

// A guardBench is a cluster with its pods and nodes, and the tokens of its accounts.
type guardBench struct {
	*program
	opts         *guardOptions
	stage        *server.Stage
	agent, other string // tokens
}

// runGuard is `bench guard`: it replays patterns of agents at kube-apiserver and at watchfan.
func runGuard(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := guardDefaults()
	if err := parseOptions("guard", o, args, stderr); err != nil {
		return err
	}
	b := &guardBench{program: newProgram(stderr, guardSection(), attributionSection()), opts: o, stage: new(server.Stage)}
	err := b.run(ctx)
	c := o.knobs().conditions()
	c.Add("window", o.Window.String())
	return b.report(stdout, o.Out, c, err)
}

func (b *guardBench) run(ctx context.Context) error {
	defer b.stage.Stop()
	if err := b.start(ctx); err != nil {
		return err
	}
	for b.round = 1; b.round <= b.opts.Rounds; b.round++ {
		for _, p := range b.opts.patterns(b.agent) {
			for _, peer := range []report.Peer{report.Direct, report.WatchfanTLS} {
				b.stage.Peer = peer
				x := report.Sample{Peer: peer, Axes: report.Axes("pattern", p.name, "agents", p.Agents, "period", p.Period)}
				measured := func() (err error) { x.Metrics, x.Remark, err = b.measure(ctx, p); return err }
				if peer == report.Direct {
					x.Err = measured()
				} else {
					x.Err = b.stage.Behind(ctx, b.opts.Watchfan, b.opts.Flags, measured)
				}
				b.stage.Proxy = nil
				if err := b.note(ctx, b.stage, "Guard", x); err != nil {
					return err
				}
			}
		}
		if err := b.attribution(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *guardBench) start(ctx context.Context) (err error) {
	b.say("starting a dev cluster")
	if b.stage.Cluster, err = server.StartCluster(ctx, b.opts.Devcluster); err != nil {
		return err
	}
	b.stage.Coll = load.NewCollection(load.ObjectConfigMaps, 96, 0)
	w := load.NewWriter(b.stage.Cluster.Endpoint, b.stage.Coll, load.NewAcks(), 16, 8)
	b.stage.Writer = w
	if err = w.Create(ctx, 1860, b.say); err != nil {
		return err
	}
	if err = load.CreatePods(ctx, w, 0, b.opts.Pods, load.NewPod, b.say); err != nil {
		return err
	}
	for i := 0; i < guardNodes && err == nil; i++ {
		err = w.CreateNode(ctx, fmt.Sprintf("node-%d", i))
	}
	if err == nil {
		b.agent, err = w.Account(ctx, "default", "agent", "cluster-admin")
	}
	if err == nil {
		b.other, err = w.Account(ctx, "default", "other", "cluster-admin")
	}
	return err
}

// others are the clients beside the agents.
func (b *guardBench) others() (admin, other load.Habit) {
	admin = load.Habit{UserAgent: "kubectl/v1.37.2 (linux/amd64) kubernetes/abcdef0", Token: b.stage.Cluster.Token, Agents: 1,
		Period: 100 * time.Millisecond, Accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Fresh: true,
		Target: func(_, n int) string { return fmt.Sprintf("/api/v1/namespaces/team-%02d/pods?limit=500", n%50) }}
	other = load.Habit{UserAgent: "controller/v1.0 (linux/amd64) kubernetes/abcdef0", Token: b.other, Agents: 2,
		Period: 100 * time.Millisecond, Accept: "application/json",
		Target: func(agent, n int) string { return load.PodPath((agent + n*17) % b.opts.Pods) }}
	return admin, other
}

// measure compares a time without the agents with one beside them.
func (b *guardBench) measure(ctx context.Context, p pattern) ([]report.Metric, string, error) {
	quiet, err := b.window(ctx)
	if err != nil {
		return nil, "", err
	}
	agents := p.Start(ctx, b.stage.Endpoint())
	defer agents.Stop()
	before := max(3*time.Second, min(p.Period, 15*time.Second)) // until each has asked once
	if err := load.Sleep(ctx, before); err != nil {
		return nil, "", err
	}
	refused := agents.Refused.Load()
	busy, err := b.window(ctx)
	if err != nil {
		return nil, "", err
	}
	got := agents.Stop()
	remark := ""
	if first := agents.First.Load(); first != nil {
		remark = fmt.Sprintf("%d failed: %.80s", agents.Failed.Load(), (*first).Error())
	}
	seconds := b.opts.Window.Seconds()
	return []report.Metric{
		report.M(unitAsked, float64(p.Agents)/p.Period.Seconds()), report.M(unitGot, float64(got.Count)/(before+b.opts.Window).Seconds()),
		report.M(unitRefused, float64(agents.Refused.Load()-refused)/seconds),
		report.M(unitReached, max(0, busy.reached-quiet.reached)/seconds),
		report.M(unitGuardCPU, busy.used.Percent(busy.used.CPU["watchfan"])),
		report.M(unitTheirCPU, busy.used.Percent(busy.used.CPU["kube-apiserver"]+busy.used.CPU["etcd"])),
		report.M(unitAdminP50, busy.admin.Quantile(0.5)), report.M(unitAdminP99, busy.admin.Quantile(0.99)),
		report.M(unitQuietP99, quiet.admin.Quantile(0.99)),
		report.M(unitOther, busy.other.Quantile(0.5)), report.M(unitOtherOf, busy.other.Quantile(0.5)/quiet.other.Quantile(0.5)),
	}, remark, nil
}

// guardWindow is what was measured in a window.
type guardWindow struct {
	reached      float64 // requests
	used         measure.Usage
	admin, other quantiles
}

type quantiles struct{ *measure.Distribution }

func (q quantiles) Quantile(of float64) float64 { return float64(q.Distribution.Quantile(of)) }

// window measures the others' requests for a while.
func (b *guardBench) window(ctx context.Context) (w guardWindow, err error) {
	before, err := b.reached(ctx)
	if err != nil {
		return w, err
	}
	meter, err := measure.StartMeter(b.stage.Processes())
	if err != nil {
		return w, err
	}
	asksTable, asksPod := b.others()
	admin, other := asksTable.Start(ctx, b.stage.Endpoint()), asksPod.Start(ctx, b.stage.Endpoint())
	err = load.Sleep(ctx, b.opts.Window)
	w.admin, w.other = quantiles{admin.Stop()}, quantiles{other.Stop()}
	used, failed := meter.Read()
	w.used = used
	after, counted := b.reached(ctx)
	w.reached = after - before
	for _, a := range []*load.Agents{admin, other} {
		if first := a.First.Load(); first != nil && err == nil {
			err = *first
		}
	}
	return w, errors.Join(err, failed, counted)
}

// reached returns the requests that kube-apiserver has answered, watches included.
func (b *guardBench) reached(ctx context.Context) (float64, error) {
	if err := load.Sleep(ctx, 50*time.Millisecond); err != nil { // a request counts when its handler returns
		return 0, err
	}
	return server.Sum(ctx, b.stage.Cluster.Endpoint, "apiserver_request_total")
}
