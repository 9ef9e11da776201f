package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// A listBench is `bench list`: one cluster with its pods, and watchfan in front of it. All cases share it: a peer
// that gets no requests is idle, but for the updates, if there are any.
type listBench struct {
	common
	Pods, Nodes, Clients, Writes, Rounds int
	ByNode, Stream                       bool
	Object                               string // that is updated
	Window, Warmup                       time.Duration

	*program
}

func (b *listBench) AddFlags(fs *flag.FlagSet) {
	b.addOut(fs)
	b.addOnly(fs)
	addNumber(fs, &b.Pods, "pods", 5000, 1, "pods in the cluster")
	addNumber(fs, &b.Nodes, "nodes", 100, 1, "nodes that the pods are on, in turn")
	addNumber(fs, &b.Clients, "clients", 4, 1, "connections, each with one list at a time")
	fs.BoolVar(&b.ByNode, "by-node", false, "each client lists the pods of a node")
	fs.BoolVar(&b.Stream, "stream", false,
		"lists are the initial events of watches, each over a new connection; in JSON alone")
	addSetting(fs, &b.Writes, "writes", 0, "updates per second meanwhile", between(0, 1000))
	addSetting(fs, &b.Object, "write-object", load.ObjectConfigMaps, "`resource` that is updated: configmaps or pods",
		oneOf(load.Objects))
	addNumber(fs, &b.Rounds, "rounds", 3, 1, "turns of each case; results are medians of these rounds")
	fs.DurationVar(&b.Window, "window", 4*time.Second, "time of each case, after which a client begins no other list")
	fs.DurationVar(&b.Warmup, "warmup", time.Second, "the same, before the measurement")
	fs.BoolFunc("quick", "one round, about three minutes", func(string) error {
		b.Rounds, b.Window = 1, 2*time.Second
		return nil
	})
}

func (b *listBench) Validate() error {
	switch {
	case b.Window < 100*time.Millisecond || b.Warmup < 0:
		return errors.New("--window must be at least 100ms, --warmup not negative")
	case len(b.cases()) == 0:
		return fmt.Errorf("--only %s: no case has such a name", b.Only)
	}
	return b.validate(true, b.Clients)
}

func (b *listBench) sections() []*report.Section { return []*report.Section{listSection()} }

func listSection() *report.Section {
	return &report.Section{
		Bench: "List", Title: "Lists",
		Columns: []report.Column{
			report.Col("lists/s", "lists/s", 1), report.Col("CPU ms/list", "cpu-ns/list", 1e-6), report.Col("all servers", "all-cpu-ns/list", 1e-6),
			report.Col("lists/CPU-s", "lists/cpu-s", 1), report.Col("p50 ms", report.UnitP50, 1e-6), report.Col("p99 ms", report.UnitP99, 1e-6),
			report.Col("MB/list", "B/list", 1e-6), report.Col("upstream", "upstream/list", 1), report.Col("passed", "passed/list", 1),
		},
		Costs: 7,
	}
}

// A listCase is one peer and one form.
type listCase struct {
	peer report.Peer
	form load.Form
}

// cases returns the cases to measure, in their order. The peers of one form follow one another.
func (b *listBench) cases() (cases []listCase) {
	forms := load.Forms
	if b.Stream {
		forms = load.StreamedForms
	}
	for _, f := range forms {
		for _, p := range report.Peers {
			if b.Only.MatchString(listSection().Name(&report.Sample{Peer: p, Axes: formAxes(f)})) {
				cases = append(cases, listCase{p, f})
			}
		}
	}
	return cases
}

func formAxes(f load.Form) []report.Axis {
	return report.Axes("format", f.Format, "encoding", f.Encoding, "rv", cmp.Or(f.Version, "unset"), "pods", "whole")
}

// run starts the servers, and measures all cases in turn.
func (b *listBench) run(ctx context.Context, p *program) error {
	b.program = p
	if err := b.start(ctx); err != nil {
		return err
	}
	for b.round = 1; b.round <= b.Rounds; b.round++ {
		for _, c := range b.cases() {
			b.stage.Peer = c.peer
			x := report.Sample{Peer: c.peer, Axes: formAxes(c.form)}
			x.Metrics, x.Err = b.measure(ctx, c.form)
			if err := b.note(ctx, b.stage, "List", x); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *listBench) start(ctx context.Context) (err error) {
	coll := load.NewCollection(b.Object, writtenConfigMaps, b.Pods)
	if err := b.startStage(ctx, b.Devcluster, coll, 1, 0); err != nil {
		return err
	}
	if err := load.CreatePods(ctx, b.stage.Writer, 0, b.Pods, b.pod, b.say); err != nil {
		return err
	}
	if b.Writes > 0 && b.Object != load.ObjectPods {
		if err := b.stage.Writer.Create(ctx, 0, b.say); err != nil {
			return err
		}
	}
	list, err := b.stage.Cluster.Get(ctx, load.PodsPath+"?resourceVersion=0")
	if err != nil {
		return err
	}
	b.settings.Add("list-bytes", fmt.Sprint(len(list)))
	b.stage.Proxy, err = server.StartProxy(ctx, b.Watchfan, b.stage.Cluster)
	return err
}

func (b *listBench) pod(i int) load.Pod { return load.NewPod(i).On(b.node(i)) }

func (b *listBench) node(i int) string { return load.PodNode(i % b.Nodes) }

func (b *listBench) query(client int) string {
	if b.ByNode {
		return load.FieldQuery("spec.nodeName", b.node(client))
	}
	return ""
}

// writtenConfigMaps is the number of ConfigMaps that are updated in turn.
const writtenConfigMaps = 16

// write begins the updates beside the lists. stop ends them, and returns what has failed.
func (b *listBench) write(ctx context.Context) (stop func() error) {
	if b.Writes == 0 {
		return func() error { return nil }
	}
	return sync.OnceValue(b.stage.Load(ctx, nil, load.Rate(b.Writes)))
}

// measure runs one case once. Clients begin together and finish each list that they begin. All work
// in the window therefore belongs to whole lists.
func (b *listBench) measure(ctx context.Context, f load.Form) ([]report.Metric, error) {
	if err := b.check(ctx, f); err != nil {
		return nil, err
	}
	stop := b.write(ctx)
	defer stop()
	clients := f.Habit(b.Clients, b.query).At(b.stage.Endpoint())
	defer clients.Close()
	if _, err := clients.For(ctx, b.Warmup); err != nil {
		return nil, err
	}
	lists, passed, err := b.counts(ctx)
	if err != nil {
		return nil, err
	}
	received := clients.Received.Load()
	var took *measure.Distribution
	used, err := metered(b.stage, func() (err error) {
		took, err = clients.For(ctx, b.Window)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := stop(); err != nil {
		return nil, err
	}
	moreLists, morePassed, err := b.counts(ctx)
	n, servers, name := float64(took.Count), report.ServersCPU(&used), b.stage.Peer.Name
	return append([]report.Metric{
		report.M("lists/s", n/used.Window.Seconds()),
		report.M("cpu-ns/list", float64(used.CPU[name])/n),
		report.M("all-cpu-ns/list", float64(servers)/n),
		report.M("lists/cpu-s", n/max(servers, measure.Tick).Seconds()),
		report.Q(report.UnitP50, took, 0.50),
		report.Q(report.UnitP99, took, 0.99),
		report.M("B/list", float64(clients.Received.Load()-received)/n),
		report.M("upstream/list", (moreLists-lists)/n),
		report.M("passed/list", (morePassed-passed)/n),
		report.M("lists", n),
		report.M("RSS-B", float64(used.RSS[name])),
	}, report.UsageMetrics(&used)...), err
}

// check makes the first client's list and decodes it. It must have every pod, with the fields of each manager.
func (b *listBench) check(ctx context.Context, f load.Form) error {
	want := b.Pods
	if b.ByNode {
		want = (b.Pods + b.Nodes - 1) / b.Nodes
	}
	once := f.Habit(1, b.query)
	once.Take = func(_ int, resp *http.Response) error {
		list, err := f.Decode(resp.Body)
		if err != nil {
			return fmt.Errorf("decode list: %w", err)
		}
		if len(list.Items) != want {
			return fmt.Errorf("list has %d pods, want %d", len(list.Items), want)
		}
		for i := range list.Items {
			if n := len(list.Items[i].ManagedFields); n != 2 {
				return fmt.Errorf("pod %s has the fields of %d managers, want 2", list.Items[i].Name, n)
			}
		}
		return nil
	}
	client := once.At(b.stage.Endpoint())
	defer client.Close()
	_, err := client.For(ctx, 0)
	return err
}

// counts returns the lists of pods that kube-apiserver has served, to any client, and the requests that
// watchfan has passed through.
func (b *listBench) counts(ctx context.Context) (lists, passed float64, err error) {
	// A request counts when its handler returns. That may be after the last byte is read.
	if err := load.Sleep(ctx, 50*time.Millisecond); err != nil {
		return 0, 0, err
	}
	if lists, err = server.Sum(ctx, b.stage.Cluster.Endpoint, "apiserver_request_total", `resource="pods"`, `verb="LIST"`); err != nil {
		return 0, 0, err
	}
	passed, err = server.Sum(ctx, b.stage.Proxy.Admin, "watchfan_passthrough_requests_total")
	return lists, passed, err
}
