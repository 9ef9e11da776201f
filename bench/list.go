//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// runList is `bench list`. It lists all pods in all forms at every peer in each round, and reports
// what was measured even if something failed.
func runList(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := listDefaults()
	if err := parseOptions("list", o, args, stderr); err != nil {
		return err
	}
	cases := o.cases()
	b, err := measureLists(ctx, o, cases, stderr)
	if b == nil {
		return err
	}
	failed := 0
	for _, c := range cases {
		failed += len(c.rounds) - len(c.good())
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d measurements failed", failed))
	}
	return report(stdout, o.Out, o.conditions(b), err, func(w io.Writer) {
		writeListTables(w, cases)
		fmt.Fprintln(w)
		writeListBenchmarks(w, cases)
	})
}

// A listCase is one peer and one form.
type listCase struct {
	peer   peer
	form   form
	direct *listCase // kube-apiserver's case in the same form; nil if it is not measured
	rounds []listResult
}

// name is the name of the case's benchmark.
func (c *listCase) name() string {
	return fmt.Sprintf("BenchmarkList/peer=%s/tls=%t/%v", c.peer.name, c.peer.tls, c.form)
}

// cases returns the cases to measure, in their order. The peers of one form follow one another.
func (o *listOptions) cases() (cases []*listCase) {
	for _, f := range forms {
		var first *listCase
		for _, p := range peers {
			if f.protocol == http20 && !p.tls || !slices.Contains(o.Protocols, f.protocol) {
				continue
			}
			c := &listCase{peer: p, form: f, direct: first}
			if !o.Only.MatchString(c.name()) {
				continue
			}
			if cases = append(cases, c); p == direct {
				first = c
			}
		}
	}
	return cases
}

// A listBench is one cluster with its pods, and watchfan in front of it. All cases share it:
// nothing is written during the lists, and a peer that gets no requests is idle.
type listBench struct {
	opts      *listOptions
	cluster   *cluster
	proxy     *proxy
	processes []measure.Process // the servers and this program
	listBytes int               // of a list in JSON
}

// measureLists starts the servers, measures all cases in turn, and stops the servers. It returns
// nil if the servers did not start.
func measureLists(ctx context.Context, o *listOptions, cases []*listCase, stderr io.Writer) (*listBench, error) {
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(stderr, "%s  %s\n", clock(time.Since(start)), fmt.Sprintf(format, args...))
	}
	b := &listBench{opts: o}
	defer b.stop()
	if err := b.start(ctx, say); err != nil {
		return nil, err
	}
	for round := range o.Rounds {
		for _, c := range cases {
			r := b.measure(ctx, c)
			if ctx.Err() != nil {
				return b, ctx.Err()
			}
			c.rounds = append(c.rounds, r)
			say("round %d/%d  %v %v: %s", round+1, o.Rounds, c.peer, c.form, r.String())
			if r.err != nil {
				if err := errors.Join(b.cluster.child.alive(), b.proxy.child.alive()); err != nil {
					return b, err
				}
			}
		}
	}
	return b, nil
}

func (b *listBench) start(ctx context.Context, say func(string, ...any)) (err error) {
	say("starting a dev cluster")
	if b.cluster, err = startCluster(ctx, b.opts.Devcluster); err != nil {
		return err
	}
	w := &writer{client: b.cluster.client(), server: b.cluster.url(), token: b.cluster.token}
	defer w.client.CloseIdleConnections()
	if err := createPods(ctx, w, 0, b.opts.Pods, newPod, say); err != nil {
		return err
	}
	list, err := b.cluster.get(ctx, podsPath+"?resourceVersion=0")
	if err != nil {
		return err
	}
	b.listBytes = len(list)
	if b.proxy, err = startProxy(ctx, b.opts.Watchfan, b.cluster); err != nil {
		return err
	}
	b.processes = append(b.processes, b.cluster.processes...)
	b.processes = append(b.processes, b.proxy.process, ownProcess())
	return nil
}

func (b *listBench) stop() {
	if b.proxy != nil {
		b.proxy.child.stop()
	}
	if b.cluster != nil {
		b.cluster.stop()
	}
}

// endpoint returns the address of a peer.
func (b *listBench) endpoint(p peer) endpoint {
	if p == direct {
		return b.cluster.endpoint
	}
	return b.proxy.endpoint(p)
}

// measure runs one case once. Clients begin together and finish each list that they begin. All work
// in the window therefore belongs to whole lists.
func (b *listBench) measure(ctx context.Context, c *listCase) (r listResult) {
	listers, err := b.connect(c)
	defer func() {
		for _, l := range listers {
			l.close()
		}
	}()
	if err == nil {
		err = b.check(c.form, listers[0])
	}
	if err == nil {
		_, err = listFor(ctx, listers, b.opts.Warmup)
	}
	var meter *measure.Meter
	var counts, countsAfter upstreamCounts
	if err == nil {
		counts, err = b.counts(ctx)
	}
	if err == nil {
		meter, err = measure.StartMeter(b.processes)
	}
	if err != nil {
		return listResult{err: err}
	}
	r.lists, r.err = listFor(ctx, listers, b.opts.Window)
	if r.Usage, err = meter.Read(); r.err == nil {
		r.err = err
	}
	if countsAfter, err = b.counts(ctx); r.err == nil {
		r.err = err
	}
	r.upstream = upstreamCounts{countsAfter.lists - counts.lists, countsAfter.passed - counts.passed}
	r.deliverer = c.peer.name
	return r
}

func (b *listBench) connect(c *listCase) (listers []lister, err error) {
	for range b.opts.Clients {
		l, err := newLister(b.endpoint(c.peer), c.form, podsPath)
		if err != nil {
			return listers, err
		}
		listers = append(listers, l)
	}
	return listers, nil
}

// check makes one list and decodes it. The list must contain every pod.
func (b *listBench) check(f form, l lister) error {
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
	return nil
}

// lists counts the lists that clients have received.
type lists struct {
	count   uint64
	wire    uint64 // bytes
	latency measure.Distribution
}

// listFor lets each lister make at least one list and begin none after d. It returns at the end of
// the last list.
func listFor(ctx context.Context, listers []lister, d time.Duration) (sum lists, err error) {
	var mu sync.Mutex // guards sum and err
	var wg sync.WaitGroup
	start := time.Now()
	for _, l := range listers {
		wg.Go(func() {
			var latency measure.Histogram
			received := l.received()
			var failed error
			for first := true; failed == nil && (first || time.Since(start) < d); first = false {
				var took time.Duration
				if took, failed = l.list(io.Discard); failed == nil {
					latency.Record(took)
					failed = ctx.Err()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum.wire += l.received() - received
			sum.latency.Add(&latency)
			if err == nil {
				err = failed
			}
		})
	}
	wg.Wait()
	sum.count = sum.latency.Count
	return sum, err
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
	page, err := b.cluster.get(ctx, "/metrics")
	if err != nil {
		return c, err
	}
	if c.lists, err = sumSeries(string(page), "apiserver_request_total", `resource="pods"`, `verb="LIST"`); err != nil {
		return c, err
	}
	if page, err = b.proxy.admin.get(ctx, "/metrics"); err != nil {
		return c, err
	}
	c.passed, err = sumSeries(string(page), "watchfan_passthrough_requests_total")
	return c, err
}
