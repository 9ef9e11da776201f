//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

const unitEvent = "cpu-ns/event"

func dispatchSection() *section {
	return &section{
		bench: "Dispatch",
		title: "Dispatch: one event among subscriptions that each select another node, or another shard, without sockets",
		note: "In this program, on package fanout's API: each event concerns one subscription, whose sink counts it. " +
			"Shards divide all objects by the hashes of their uids.",
		columns: []column{
			{"CPU µs/event", unitEvent, 1e-3},
			{"events/s", "events/s", 1},
			{"bytes/subscription", "heap-B/subscription", 1},
		},
	}
}

// dispatch measures how watchfan's cache finds the one subscription that an event concerns.
func (p *program) dispatch(ctx context.Context) error {
	for _, by := range []struct {
		name    string
		numbers []int
		choice  dispatchChoice
	}{
		{"node", []int{50, 5000, 100_000}, dispatchNode},
		{"shard", []int{50, mostShards}, dispatchShard},
	} {
		for _, n := range by.numbers {
			x := sample{peer: inProcess, axes: []axis{{"by", by.name}, {"subscriptions", strconv.Itoa(n)}}}
			x.metrics, x.err = dispatchAmong(ctx, n, by.choice, p.opts.Window/2)
			if err := p.note(ctx, nil, partDispatch, x, 2); err != nil {
				return err
			}
		}
	}
	return nil
}

// mostShards is the number of different shards whose watches watchfan serves from one cache.
const mostShards = 4096

// A dispatchChoice returns what subscription i of n selects. No object is selected twice.
type dispatchChoice func(i, n int) (*fanout.Filter, bool)

func dispatchNode(i, _ int) (*fanout.Filter, bool) {
	return fanout.NewFilter("", nil, fields.OneTermEqualSelector("spec.nodeName", dispatchNodeName(i)),
		[]string{"spec.nodeName"})
}

func dispatchNodeName(i int) string { return new(collection).node(i) }

func dispatchShard(i, n int) (*fanout.Filter, bool) {
	all, ok := fanout.NewFilter("", nil, nil, nil)
	begin := func(i int) uint64 { // of shard i, among all hashes
		hash, _ := bits.Div64(uint64(i), 0, uint64(n))
		return hash
	}
	r := fanout.HashRange{First: begin(i), Last: math.MaxUint64}
	if i+1 < n {
		r.Last = begin(i+1) - 1
	}
	return all.Within(fanout.NewHashRanges(fanout.HashedUID, []fanout.HashRange{r})), ok
}

// A countingSink accepts every batch at once and counts the events.
type countingSink struct{ got atomic.Int64 }

func (s *countingSink) Write(batch [][]byte) (bool, error) {
	n := 0
	for _, b := range batch {
		if bytes.HasSuffix(b, []byte("\r\n")) { // otherwise it is the head of an event
			n++
		}
	}
	s.got.Add(int64(n))
	return false, nil
}

func (s *countingSink) Drain(func(error))       {}
func (s *countingSink) End(fanout.Reason, bool) {}

// await waits for n events.
func (s *countingSink) await(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for s.got.Load() < n {
		if err := sleep(ctx, 50*time.Microsecond); err != nil {
			return fmt.Errorf("%d of %d events have come: %w", s.got.Load(), n, err)
		}
	}
	return nil
}

// dispatchAmong applies events to a cache with n subscriptions for d, and returns the cost of one.
func dispatchAmong(ctx context.Context, n int, choice dispatchChoice, d time.Duration) ([]metric, error) {
	before := heap()
	x, err := newDispatcher(dispatchNodeName(n / 2))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { x.flusher.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	if err := x.subscribe(n, choice); err != nil {
		return nil, err
	}
	held := heap() - before

	self := ownProcess()
	cpu, err := self.CPU()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	events, err := x.apply(ctx, d)
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	used, err := self.CPU()
	switch {
	case err != nil:
		return nil, err
	case x.wanted.got.Load() != events || x.others.got.Load() > 0:
		return nil, fmt.Errorf("of %d events %d came to the subscription that wants them and %d to others",
			events, x.wanted.got.Load(), x.others.got.Load())
	}
	return []metric{
		{unitEvent, float64(used-cpu) / float64(events)},
		{"events/s", float64(events) / took.Seconds()},
		{"heap-B/subscription", float64(held) / float64(n)},
	}, nil
}

// A dispatcher is a cache whose subscriptions each select other objects.
type dispatcher struct {
	template framing.Event // of a pod, which changes again and again
	flusher  *fanout.Flusher
	cache    *fanout.Cache

	wanted countingSink // of the one subscription that every event concerns
	others countingSink // of all others
}

// newDispatcher returns a dispatcher without subscriptions, of a pod on a node.
func newDispatcher(node string) (*dispatcher, error) {
	const plenty = 1 << 20
	limits := fanout.Limits{HistoryEvents: 1000, HistoryBytes: plenty, ClientFrames: plenty, ClientBytes: plenty << 10}
	x := &dispatcher{flusher: fanout.NewFlusher(1, 0, fanout.NewMetrics(metrics.NewSet()))}
	x.cache = fanout.NewCache(limits, x.flusher)
	if _, err := x.cache.Replace(nil, 1, time.Now()); err != nil {
		return nil, err
	}
	nodeName := []framing.Field{{Label: "spec.nodeName", Paths: [][]string{{"spec", "nodeName"}}}}
	var err error
	x.template, err = framing.NewScanner(framing.JSON, nodeName).Event([]byte(`{"type":"MODIFIED","object":` +
		`{"metadata":{"name":"pod","namespace":"bench","uid":"7d6a4f0e-5d3c-4b8f-9a51-0c2f6d1e8b34","resourceVersion":"2"},` +
		`"spec":{"nodeName":"` + node + `"}}}` + "\n"))
	return x, err
}

// subscribe opens n subscriptions. One of them is the one that events concern.
func (x *dispatcher) subscribe(n int, choice dispatchChoice) error {
	for i := range n {
		filter, ok := choice(i, n)
		if !ok {
			return fmt.Errorf("no filter for subscription %d of %d", i, n)
		}
		sub, err := x.cache.Subscribe(fanout.Request{Filter: filter, Timeout: time.Hour})
		if err != nil {
			return err
		}
		sink := &x.others
		if filter.Match(x.template.Object) {
			sink = &x.wanted
		}
		x.flusher.Start(sub, sink)
	}
	return nil
}

// apply changes the pod for d, and returns the number of events when all have come.
func (x *dispatcher) apply(ctx context.Context, d time.Duration) (events int64, err error) {
	const backlog = 128 // events; a longer one would measure the garbage collector
	start := time.Now()
	for rv := uint64(2); ctx.Err() == nil && (events%backlog != 0 || time.Since(start) < d); rv++ {
		ev := x.template
		ev.Object, ev.ResourceVersion = x.template.Object.Repeated(rv), rv
		if err := x.cache.Apply(ev, time.Now()); err != nil {
			return events, err
		}
		if events++; events%backlog == 0 {
			if err := x.wanted.await(ctx, events-backlog); err != nil {
				return events, err
			}
		}
	}
	return events, x.wanted.await(ctx, events)
}

// heap returns the bytes that are reachable in this process.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
