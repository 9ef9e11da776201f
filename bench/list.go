//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
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
	Rounds  int            // turns of each case
	Window  time.Duration  // time after which a client begins no other list
	Warmup  time.Duration  // the same, before the window
	Only    *regexp.Regexp // cases to measure, by name
}

func listDefaults() *listOptions {
	return &listOptions{
		binaries: builtBinaries,
		Pods:     5000, Clients: 4, Rounds: 3, Window: 4 * time.Second, Warmup: time.Second,
		Only: regexp.MustCompile(""),
	}
}

// AddFlags adds the flags of `bench list`.
func (o *listOptions) AddFlags(fs *flag.FlagSet) {
	o.binaries.addFlags(fs)
	fs.IntVar(&o.Pods, "pods", o.Pods, "pods in the cluster")
	fs.IntVar(&o.Clients, "clients", o.Clients, "connections, each with one list at a time")
	fs.BoolVar(&o.Lean, "lean", o.Lean, "at watchfan, lists without managed fields too")
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
func (o *listOptions) conditions(listBytes int) conditions {
	c := machineConditions()
	c.add("pods", fmt.Sprint(o.Pods))
	c.add("list-bytes", fmt.Sprint(listBytes))
	c.add("clients", fmt.Sprint(o.Clients))
	c.add("window", o.Window.String())
	c.add("rounds", fmt.Sprint(o.Rounds))
	return c
}

func listSection() *section {
	return &section{
		bench: "List", title: "Lists",
		columns: []column{
			{"lists/s", unitLists, 1}, {"CPU ms/list", unitListCPU, 1e-6}, {"all servers", unitAllListCPU, 1e-6},
			{"lists/CPU-s", unitListsPerCPU, 1}, {"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6},
			{"MB/list", unitListBytes, 1e-6}, {"upstream", unitUpstream, 1}, {"passed", unitPassed, 1},
		},
		costs: 7,
	}
}

// A listCase is one peer and one form.
type listCase struct {
	peer peer
	form form
}

// cases returns the cases to measure, in their order. The peers of one form follow one another.
func (o *listOptions) cases() (cases []listCase) {
	for _, f := range forms(o.Lean) {
		for _, p := range peers {
			c := listCase{p, f}
			name := listSection().name(&sample{peer: p, axes: f.axes()})
			if (!f.lean || p != direct) && o.Only.MatchString(name) {
				cases = append(cases, c)
			}
		}
	}
	return cases
}

// A listBench is one cluster with its pods, and watchfan in front of it. All cases share it:
// nothing is written during the lists, and a peer that gets no requests is idle.
type listBench struct {
	*program
	opts      *listOptions
	stage     *stage
	listBytes int // of a list in JSON
}

// runList is `bench list`. It lists all pods in all forms at every peer in each round, and reports
// what was measured even if something failed.
func runList(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := listDefaults()
	if err := parseOptions("list", o, args, stderr); err != nil {
		return err
	}
	start := time.Now()
	b := &listBench{program: &program{sections: []*section{listSection()}}, opts: o, stage: new(stage)}
	b.say = func(format string, args ...any) {
		fmt.Fprintf(stderr, "%s  %s\n", clock(time.Since(start)), fmt.Sprintf(format, args...))
	}
	err := b.run(ctx)
	return reportSections(stdout, o.Out, o.conditions(b.listBytes), err, b.sections)
}

// run starts the servers, measures all cases in turn, and stops the servers.
func (b *listBench) run(ctx context.Context) error {
	defer b.stage.stop()
	if err := b.start(ctx); err != nil {
		return err
	}
	for b.round = 1; b.round <= b.opts.Rounds; b.round++ {
		for _, c := range b.opts.cases() {
			b.stage.peer = c.peer
			x := sample{peer: c.peer, axes: c.form.axes()}
			x.metrics, x.err = b.measure(ctx, c.form)
			if err := b.note(ctx, b.stage, "List", x); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *listBench) start(ctx context.Context) (err error) {
	b.say("starting a dev cluster")
	if b.stage.cluster, err = startCluster(ctx, b.opts.Devcluster); err != nil {
		return err
	}
	w := newWriter(b.stage.cluster.endpoint, &collection{}, newAcks(), 0, 0)
	defer w.client.CloseIdleConnections()
	if err := createPods(ctx, w, 0, b.opts.Pods, newPod, b.say); err != nil {
		return err
	}
	list, err := b.stage.cluster.get(ctx, podsPath+"?resourceVersion=0")
	if err != nil {
		return err
	}
	b.listBytes = len(list)
	b.stage.proxy, err = startProxy(ctx, b.opts.Watchfan, b.stage.cluster)
	return err
}

// measure runs one case once. Clients begin together and finish each list that they begin. All work
// in the window therefore belongs to whole lists.
func (b *listBench) measure(ctx context.Context, f form) ([]metric, error) {
	listers, err := b.connect(f)
	defer func() {
		for _, l := range listers {
			l.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := b.check(f, listers[0]); err != nil {
		return nil, err
	}
	if _, err := listFor(ctx, listers, b.opts.Warmup); err != nil {
		return nil, err
	}
	before, err := b.counts(ctx)
	if err != nil {
		return nil, err
	}
	meter, err := measure.StartMeter(withBench(b.stage))
	if err != nil {
		return nil, err
	}
	got, err := listFor(ctx, listers, b.opts.Window)
	used, failed := meter.Read()
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	after, err := b.counts(ctx)
	n, servers, name := float64(got.count), serversCPU(&used), b.stage.peer.name
	return append([]metric{
		{unitLists, n / used.Window.Seconds()},
		{unitListCPU, float64(used.CPU[name]) / n},
		{unitAllListCPU, float64(servers) / n},
		{unitListsPerCPU, n / max(servers, measure.Tick).Seconds()},
		{unitP50, float64(got.latency.Quantile(0.50))},
		{unitP99, float64(got.latency.Quantile(0.99))},
		{unitListBytes, float64(got.wire) / n},
		{unitUpstream, (after.lists - before.lists) / n},
		{unitPassed, (after.passed - before.passed) / n},
		{"lists", n},
		{"RSS-B", float64(used.RSS[name])},
	}, usageMetrics(&used)...), err
}

func (b *listBench) connect(f form) (listers []*lister, err error) {
	for range b.opts.Clients {
		l, err := newLister(b.stage.endpoint(), f, podsPath)
		if err != nil {
			return listers, err
		}
		listers = append(listers, l)
	}
	return listers, nil
}

// check makes one list and decodes it. It must have every pod, with the fields of each manager or
// without.
func (b *listBench) check(f form, l *lister) error {
	var body bytes.Buffer
	if _, err := l.list(&body); err != nil {
		return err
	}
	list, err := decodePods(f, &body)
	if err != nil {
		return fmt.Errorf("decode list: %w", err)
	}
	if len(list.Items) != b.opts.Pods {
		return fmt.Errorf("list has %d pods, want %d", len(list.Items), b.opts.Pods)
	}
	managers := 2
	if f.lean {
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
	if err := sleep(ctx, 50*time.Millisecond); err != nil {
		return c, err
	}
	page, err := b.stage.cluster.get(ctx, "/metrics")
	if err != nil {
		return c, err
	}
	if c.lists, err = sumSeries(string(page), "apiserver_request_total", `resource="pods"`, `verb="LIST"`); err != nil {
		return c, err
	}
	if page, err = b.stage.proxy.admin.get(ctx, "/metrics"); err != nil {
		return c, err
	}
	c.passed, err = sumSeries(string(page), "watchfan_passthrough_requests_total")
	return c, err
}
