//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"regexp"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// Units of lists, by name for the tables.
const (
	unitLists       = "lists/s"
	unitListCPU     = "cpu-ns/list"     // of the delivering server
	unitAllListCPU  = "all-cpu-ns/list" // of all servers
	unitListsPerCPU = "lists/cpu-s"     // per second of all servers' CPU
	unitListBytes   = "B/list"          // on the wire
	unitUpstream    = "upstream/list"   // lists of pods at kube-apiserver
	unitPassed      = "passed/list"     // requests that watchfan passed through
)

// listOptions are the settings of `bench list`.
type listOptions struct {
	binaries
	output

	Pods    int            // in the cluster
	Clients int            // connections, each with one list at a time
	Lean    bool           // lists without managed fields too
	ByNode  bool           // each client lists the pods of a node
	Nodes   int            // that the pods are on, in turn
	Stream  bool           // lists are the initial events of watches
	Writes  int            // updates a second meanwhile
	Object  string         // what they update
	Rounds  int            // turns of each case
	Window  time.Duration  // time after which a client begins no other list
	Warmup  time.Duration  // the same, before the window
	Only    *regexp.Regexp // cases to measure, by name
}

func listDefaults() *listOptions {
	return &listOptions{
		binaries: builtBinaries,
		Pods:     5000, Nodes: 100, Clients: 4, Rounds: 3, Window: 4 * time.Second, Warmup: time.Second,
		Object: load.ObjectConfigMaps, Only: regexp.MustCompile(""),
	}
}

func (o *listOptions) knobs() knobs {
	return knobs{
		{"pods", &o.Pods, 1, math.MaxInt, "pods in the cluster"},
		{"nodes", &o.Nodes, 1, math.MaxInt, "nodes that the pods are on, in turn"},
		{"clients", &o.Clients, 1, math.MaxInt, "connections, each with one list at a time"},
		{"writes", &o.Writes, 0, 1000, "updates per second meanwhile"},
		{"rounds", &o.Rounds, 1, math.MaxInt, "turns of each case; results are medians of these rounds"},
	}
}

// AddFlags adds the flags of `bench list`.
func (o *listOptions) AddFlags(fs *flag.FlagSet) {
	o.binaries.addFlags(fs)
	o.output.addFlags(fs)
	o.knobs().addFlags(fs)
	fs.BoolVar(&o.Lean, "lean", o.Lean, "at watchfan, lists without managed fields too")
	fs.BoolVar(&o.ByNode, "by-node", o.ByNode, "each client lists the pods of a node")
	fs.BoolVar(&o.Stream, "stream", o.Stream, "lists are the initial events of watches, each over a new connection; in JSON alone")
	fs.StringVar(&o.Object, "write-object", o.Object, "`resource` that is updated: configmaps or pods")
	fs.DurationVar(&o.Window, "window", o.Window, "measured time of each case")
	fs.DurationVar(&o.Warmup, "warmup", o.Warmup, "time of each case before the measurement")
	addPattern(fs, &o.Only, "measure only cases with names that match this `regexp`, as 'format=json/.*/rv=0'")
	fs.BoolFunc("quick", "one round, about three minutes", func(string) error {
		o.Rounds, o.Window = 1, 2*time.Second
		return nil
	})
}

// Validate reports options that cannot be used on this machine.
func (o *listOptions) Validate() error {
	if err := o.knobs().validate(); err != nil {
		return err
	}
	switch {
	case o.Window < 100*time.Millisecond || o.Warmup < 0:
		return errors.New("--window must be at least 100ms, --warmup not negative")
	case o.Object != load.ObjectConfigMaps && o.Object != load.ObjectPods:
		return fmt.Errorf("--write-object %q: want configmaps or pods", o.Object)
	case len(o.cases()) == 0:
		return fmt.Errorf("--only %s: no case has such a name", o.Only)
	}
	return errors.Join(o.output.validate(), o.binaries.validate(true), load.RaiseFileLimit(o.Clients))
}

func listSection() *report.Section {
	return &report.Section{
		Bench: "List", Title: "Lists",
		Columns: []report.Column{
			report.Col("lists/s", unitLists, 1), report.Col("CPU ms/list", unitListCPU, 1e-6), report.Col("all servers", unitAllListCPU, 1e-6),
			report.Col("lists/CPU-s", unitListsPerCPU, 1), report.Col("p50 ms", report.UnitP50, 1e-6), report.Col("p99 ms", report.UnitP99, 1e-6),
			report.Col("MB/list", unitListBytes, 1e-6), report.Col("upstream", unitUpstream, 1), report.Col("passed", unitPassed, 1),
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
func (o *listOptions) cases() (cases []listCase) {
	for _, f := range load.Forms(o.Lean) {
		if f.Streamed = o.Stream; f.Streamed && (f.Format != "json" || f.Encoding != "identity") {
			continue
		}
		for _, p := range report.Peers {
			c := listCase{p, f}
			name := listSection().Name(&report.Sample{Peer: p, Axes: formAxes(f)})
			if (!f.Lean || p != report.Direct) && o.Only.MatchString(name) {
				cases = append(cases, c)
			}
		}
	}
	return cases
}

// formAxes returns the properties of a case.
func formAxes(f load.Form) []report.Axis {
	version, pods := f.Version, "whole"
	if version == "" {
		version = "unset"
	}
	if f.Lean {
		pods = "lean"
	}
	return report.Axes("format", f.Format, "encoding", f.Encoding, "rv", version, "pods", pods)
}

// A listBench is one cluster with its pods, and watchfan in front of it. All cases share it:
// nothing is written during the lists, and a peer that gets no requests is idle.
type listBench struct {
	*program
	opts      *listOptions
	stage     *server.Stage
	writer    *load.Writer
	listBytes int // of a list of all in JSON
}

// runList is `bench list`. It lists all pods in all forms at every peer in each round, and reports
// what was measured even if something failed.
func runList(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := listDefaults()
	if err := parseOptions("list", o, args, stderr); err != nil {
		return err
	}
	b := &listBench{program: newProgram(stderr, listSection()), opts: o, stage: new(server.Stage)}
	err := b.run(ctx)
	c := o.knobs().conditions()
	c.Add("list-bytes", fmt.Sprint(b.listBytes))
	c.Add("window", o.Window.String())
	c.Add("by-node", fmt.Sprint(o.ByNode))
	c.Add("write-object", o.Object)
	c.Add("stream", fmt.Sprint(o.Stream))
	return b.report(stdout, o.Out, c, err)
}

// run starts the servers, measures all cases in turn, and stops the servers.
func (b *listBench) run(ctx context.Context) error {
	defer b.stage.Stop()
	if err := b.start(ctx); err != nil {
		return err
	}
	for b.round = 1; b.round <= b.opts.Rounds; b.round++ {
		for _, c := range b.opts.cases() {
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
	b.say("starting a dev cluster")
	if b.stage.Cluster, err = server.StartCluster(ctx, b.opts.Devcluster); err != nil {
		return err
	}
	b.writer = load.NewWriter(b.stage.Cluster.Endpoint, load.NewCollection(b.opts.Object, writtenConfigMaps, b.opts.Pods),
		load.NewAcks(), 1, 0)
	if err := load.CreatePods(ctx, b.writer, 0, b.opts.Pods, b.pod, b.say); err != nil {
		return err
	}
	if b.opts.Writes > 0 && b.opts.Object != load.ObjectPods {
		if err := b.writer.Create(ctx, 0, b.say); err != nil {
			return err
		}
	}
	list, err := b.stage.Cluster.Get(ctx, load.PodsPath+"?resourceVersion=0")
	if err != nil {
		return err
	}
	b.listBytes = len(list)
	b.stage.Proxy, err = server.StartProxy(ctx, b.opts.Watchfan, b.stage.Cluster)
	return err
}

// pod returns the i-th pod.
func (b *listBench) pod(i int) load.Pod { return load.NewPod(i).On(b.node(i)) }

// node returns the node of pod i.
func (b *listBench) node(i int) string { return load.PodNode(i % b.opts.Nodes) }

// measure runs one case once. Clients begin together and finish each list that they begin. All work
// in the window therefore belongs to whole lists.
func (b *listBench) measure(ctx context.Context, f load.Form) ([]report.Metric, error) {
	var listers []*load.Lister
	for i := range b.opts.Clients {
		query := ""
		if b.opts.ByNode {
			query = load.FieldQuery("spec.nodeName", b.node(i))
		}
		l, err := load.NewLister(b.stage.Endpoint(), f, query)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		listers = append(listers, l)
	}
	if err := b.check(f, listers[0]); err != nil {
		return nil, err
	}
	stop := b.write(ctx)
	defer stop()
	if _, err := load.ListFor(ctx, listers, b.opts.Warmup); err != nil {
		return nil, err
	}
	before, err := b.counts(ctx)
	if err != nil {
		return nil, err
	}
	meter, err := measure.StartMeter(server.WithBench(b.stage))
	if err != nil {
		return nil, err
	}
	got, err := load.ListFor(ctx, listers, b.opts.Window)
	used, failed := meter.Read()
	if err := errors.Join(err, failed, stop()); err != nil {
		return nil, err
	}
	after, err := b.counts(ctx)
	n, servers, name := float64(got.Latency.Count), report.ServersCPU(&used), b.stage.Peer.Name
	return append([]report.Metric{
		report.M(unitLists, n/used.Window.Seconds()),
		report.M(unitListCPU, float64(used.CPU[name])/n),
		report.M(unitAllListCPU, float64(servers)/n),
		report.M(unitListsPerCPU, n/max(servers, measure.Tick).Seconds()),
		report.M(report.UnitP50, float64(got.Latency.Quantile(0.50))),
		report.M(report.UnitP99, float64(got.Latency.Quantile(0.99))),
		report.M(unitListBytes, float64(got.Wire)/n),
		report.M(unitUpstream, (after.lists-before.lists)/n),
		report.M(unitPassed, (after.passed-before.passed)/n),
		report.M("lists", n),
		report.M("RSS-B", float64(used.RSS[name])),
	}, report.UsageMetrics(&used)...), err
}

// writtenConfigMaps is the number of ConfigMaps that are updated in turn.
const writtenConfigMaps = 16

// write begins the updates beside the lists. stop ends them, and returns what has failed.
func (b *listBench) write(ctx context.Context) (stop func() error) {
	if b.opts.Writes == 0 {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	wrote := make(chan error, 1)
	go func() { wrote <- b.writer.Run(ctx, nil, float64(b.opts.Writes)) }()
	return sync.OnceValue(func() error { cancel(); return <-wrote })
}

// check makes the first client's list and decodes it. It must have every pod, with the fields of each manager or
// without.
func (b *listBench) check(f load.Form, l *load.Lister) error {
	var body bytes.Buffer
	if _, err := l.List(&body); err != nil {
		return err
	}
	list, err := load.DecodePods(f, &body)
	if err != nil {
		return fmt.Errorf("decode list: %w", err)
	}
	want := b.opts.Pods
	if b.opts.ByNode {
		want = (b.opts.Pods + b.opts.Nodes - 1) / b.opts.Nodes
	}
	if len(list.Items) != want {
		return fmt.Errorf("list has %d pods, want %d", len(list.Items), want)
	}
	managers := 2
	if f.Lean {
		managers = 0
	}
	for i := range list.Items {
		if n := len(list.Items[i].ManagedFields); n != managers {
			return fmt.Errorf("pod %s has the fields of %d managers, want %d", list.Items[i].Name, n, managers)
		}
	}
	return nil
}

// upstreamCounts are counters of kube-apiserver and watchfan.
type upstreamCounts struct {
	lists  float64 // lists of pods that kube-apiserver has served, to any client
	passed float64 // requests that watchfan has passed through
}

func (b *listBench) counts(ctx context.Context) (c upstreamCounts, err error) {
	// A request counts when its handler returns. That may be after the last byte is read.
	if err := load.Sleep(ctx, 50*time.Millisecond); err != nil {
		return c, err
	}
	c.lists, err = server.Sum(ctx, b.stage.Cluster.Endpoint, "apiserver_request_total", `resource="pods"`, `verb="LIST"`)
	if err != nil {
		return c, err
	}
	c.passed, err = server.Sum(ctx, b.stage.Proxy.Admin, "watchfan_passthrough_requests_total")
	return c, err
}
