package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// A guardBench is `bench guard`, which replays patterns of agents at kube-apiserver and at watchfan.
type guardBench struct {
	common
	Pods, Scale, Rounds int
	Window              time.Duration
	Flags               list[string] // of watchfan

	*program
	agent, other string // tokens of users of the dev cluster: one may do everything, one may read
}

func (b *guardBench) AddFlags(fs *flag.FlagSet) {
	b.addOut(fs)
	b.addOnly(fs)
	addNumber(fs, &b.Pods, "pods", 5000, 100, "pods in the cluster")
	addSetting(fs, &b.Scale, "scale", 10, "what the number of agents is divided by", between(1, 1000))
	addNumber(fs, &b.Rounds, "rounds", 1, 1, "turns of each pattern; results are medians of these rounds")
	addList(fs, &b.Flags, "watchfan-flags", nil, "`flags` of watchfan", func(s string) (string, error) { return s, nil })
	fs.DurationVar(&b.Window, "window", 20*time.Second, "measured time, without and with the agents")
}

func (b *guardBench) Validate() error {
	if b.Window < time.Second || len(b.patterns()) == 0 && len(b.costs()) == 0 {
		return errors.New("--window must be at least 1s, and --only must match a pattern")
	}
	return b.validate(true, 4*5000/b.Scale)
}

func (b *guardBench) sections() []*report.Section {
	return []*report.Section{guardSection(), attributionSection()}
}

// guardNodes is the number of Nodes that agents read.
const guardNodes = 100

// A pattern is what agents do that have brought a cluster down, or might.
type pattern struct {
	name string
	load.Habit
}

func (b *guardBench) patterns() (all []pattern) {
	habit := func(name string, agents int, period time.Duration, target func(agent, n int) string) {
		h := load.Habit{UserAgent: name + "/v1.0 (linux/amd64) kubernetes/abcdef0", Token: b.agent, Clients: max(1, agents/b.Scale),
			Period: period, Gzip: true, Target: target}
		if b.Only.MatchString(name) {
			all = append(all, pattern{name, h})
		}
	}
	pod := func(agent, n int) string { return load.PodPath((agent*7919 + n*31) % b.Pods) }
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
			report.Col("asked/s", "asked/s", 1), report.Col("answered/s", "answered/s", 1), report.Col("429/s", "refused/s", 1),
			report.Col("reached/s", "reached/s", 1), report.Col("watchfan CPU %", "cpu-%", 1), report.Col("kube CPU %", "kube-cpu-%", 1),
			report.Col("admin p50 ms", "admin-p50-ns", 1e-6), report.Col("p99 ms", "admin-p99-ns", 1e-6),
			report.Col("quiet p99 ms", "admin-quiet-p99-ns", 1e-6),
			report.Col("other p50 ms", "other-p50-ns", 1e-6), report.Col("of quiet", "x-other-quiet", 1),
		},
	}
}

func (b *guardBench) run(ctx context.Context, p *program) error {
	b.program = p
	if err := b.start(ctx); err != nil {
		return err
	}
	for b.round = 1; b.round <= b.Rounds; b.round++ {
		for _, p := range b.patterns() {
			if err := b.replay(ctx, p); err != nil {
				return err
			}
		}
		if err := b.attribution(ctx); err != nil {
			return err
		}
	}
	return nil
}

// replay measures a pattern at both peers.
func (b *guardBench) replay(ctx context.Context, p pattern) error {
	for _, b.stage.Peer = range []report.Peer{report.Direct, report.WatchfanTLS} {
		x := report.Sample{Peer: b.stage.Peer, Axes: report.Axes("pattern", p.name, "agents", p.Clients, "period", p.Period)}
		measured := func() (err error) { x.Metrics, x.Remark, err = b.measure(ctx, p); return err }
		if x.Peer == report.Direct {
			x.Err = measured()
		} else {
			x.Err = b.stage.Behind(ctx, b.Watchfan, b.Flags, measured)
		}
		if err := b.note(ctx, b.stage, "Guard", x); err != nil {
			return err
		}
	}
	return nil
}

func (b *guardBench) start(ctx context.Context) (err error) {
	if err := b.startStage(ctx, b.Devcluster, load.NewCollection(load.ObjectConfigMaps, 96, 0), 16, 8); err != nil {
		return err
	}
	w := b.stage.Writer
	if err = w.Create(ctx, 1860, b.say); err != nil {
		return err
	}
	if err = load.CreatePods(ctx, w, 0, b.Pods, load.NewPod, b.say); err != nil {
		return err
	}
	for i := 0; i < guardNodes && err == nil; i++ {
		_, err = w.Send(ctx, "POST", "/api/v1/nodes", fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-%d"}}`, i))
	}
	b.agent, b.other = b.stage.Cluster.Tokens["user"], b.stage.Cluster.Tokens["reader"]
	return errors.Join(err, w.Allow(ctx, "dev-user", "cluster-admin"))
}

// others are the clients beside the agents.
func (b *guardBench) others() (admin, other load.Habit) {
	admin = load.Habit{UserAgent: "kubectl/v1.37.2 (linux/amd64) kubernetes/abcdef0", Token: b.stage.Cluster.Token, Clients: 1,
		Period: 100 * time.Millisecond, Accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Gzip: true, Fresh: true,
		Target: func(_, n int) string { return fmt.Sprintf("/api/v1/namespaces/team-%02d/pods?limit=500", n%50) }}
	other = load.Habit{UserAgent: "controller/v1.0 (linux/amd64) kubernetes/abcdef0", Token: b.other, Clients: 2,
		Period: 100 * time.Millisecond, Gzip: true,
		Target: func(agent, n int) string { return load.PodPath((agent + n*17) % b.Pods) }}
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
	seconds := b.Window.Seconds()
	return []report.Metric{
		report.M("asked/s", float64(p.Clients)/p.Period.Seconds()), report.M("answered/s", float64(got.Count)/(before+b.Window).Seconds()),
		report.M("refused/s", float64(agents.Refused.Load()-refused)/seconds),
		report.M("reached/s", max(0, busy.reached-quiet.reached)/seconds),
		report.M("cpu-%", busy.used.Percent(busy.used.CPU["watchfan"])),
		report.M("kube-cpu-%", busy.used.Percent(busy.used.CPU["kube-apiserver"]+busy.used.CPU["etcd"])),
		report.Q("admin-p50-ns", busy.admin, 0.5), report.Q("admin-p99-ns", busy.admin, 0.99),
		report.Q("admin-quiet-p99-ns", quiet.admin, 0.99), report.Q("other-p50-ns", busy.other, 0.5),
		report.M("x-other-quiet", float64(busy.other.Quantile(0.5))/float64(quiet.other.Quantile(0.5))),
	}, remark, nil
}

// guardWindow is what was measured in a window.
type guardWindow struct {
	reached      float64 // requests
	used         measure.Usage
	admin, other *measure.Distribution
}

// window measures the others' requests for a while.
func (b *guardBench) window(ctx context.Context) (w guardWindow, err error) {
	before, err := b.reached(ctx)
	if err != nil {
		return w, err
	}
	w.used, err = metered(b.stage, func() error {
		asksTable, asksPod := b.others()
		admin, other := asksTable.Start(ctx, b.stage.Endpoint()), asksPod.Start(ctx, b.stage.Endpoint())
		err := load.Sleep(ctx, b.Window)
		w.admin, w.other = admin.Stop(), other.Stop()
		for _, a := range []*load.Clients{admin, other} {
			if first := a.First.Load(); first != nil && err == nil {
				err = *first
			}
		}
		return err
	})
	after, failed := b.reached(ctx)
	w.reached = after - before
	return w, errors.Join(err, failed)
}

// reached returns the requests that kube-apiserver has answered, watches included.
func (b *guardBench) reached(ctx context.Context) (float64, error) {
	if err := load.Sleep(ctx, 50*time.Millisecond); err != nil { // a request counts when its handler returns
		return 0, err
	}
	return server.Sum(ctx, b.stage.Cluster.Endpoint, "apiserver_request_total")
}
