//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

const unitEvent = "cpu-ns/event"

func dispatchSection() *section {
	return &section{
		bench: "Dispatch",
		title: "Dispatch: one event among subscriptions that each select another node, without sockets",
		note:  "In this program, on package fanout's API: each event concerns one subscription, whose sink counts it.",
		columns: []column{
			{"CPU µs/event", unitEvent, 1e-3},
			{"events/s", "events/s", 1},
			{"bytes/subscription", "heap-B/subscription", 1},
		},
	}
}

// dispatch measures how watchfan's cache finds the one subscription that an event concerns.
func (p *program) dispatch(ctx context.Context) error {
	for _, n := range []int{50, 5000, 100_000} {
		x := sample{peer: inProcess, axes: []axis{{"subscriptions", strconv.Itoa(n)}}}
		x.metrics, x.err = dispatchAmong(ctx, n, p.opts.Window/2)
		if err := p.note(ctx, nil, partDispatch, x, 2); err != nil {
			return err
		}
	}
	return nil
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
func dispatchAmong(ctx context.Context, n int, d time.Duration) ([]metric, error) {
	before := heap()
	x, err := newDispatcher()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { x.flusher.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	if err := x.subscribe(n); err != nil {
		return nil, err
	}
	held := heap() - before

	self := ownProcess()
	cpu, err := self.CPU()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	events, err := x.apply(ctx, x.coll.node(n/2), d)
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

// A dispatcher is a cache whose subscriptions each select another node.
type dispatcher struct {
	coll    collection // names the nodes
	flusher *fanout.Flusher
	cache   *fanout.Cache

	wanted countingSink // of the one subscription that every event concerns
	others countingSink // of all others
}

func newDispatcher() (*dispatcher, error) {
	const plenty = 1 << 20
	limits := fanout.Limits{HistoryEvents: 1000, HistoryBytes: plenty, ClientFrames: plenty, ClientBytes: plenty << 10}
	x := &dispatcher{flusher: fanout.NewFlusher(1, 0)}
	x.cache = fanout.NewCache(limits, x.flusher)
	_, err := x.cache.Replace(nil, 1, time.Now())
	return x, err
}

// subscribe opens n subscriptions. The one in the middle is the one that events concern.
func (x *dispatcher) subscribe(n int) error {
	for i := range n {
		selector := fields.OneTermEqualSelector("spec.nodeName", x.coll.node(i))
		filter, ok := fanout.NewFilter("", nil, selector, []string{"spec.nodeName"})
		if !ok {
			return fmt.Errorf("no filter by spec.nodeName")
		}
		sub, err := x.cache.Subscribe(fanout.Request{Filter: filter, Timeout: time.Hour})
		if err != nil {
			return err
		}
		sink := &x.others
		if i == n/2 {
			sink = &x.wanted
		}
		x.flusher.Start(sub, sink)
	}
	return nil
}

// apply changes a pod on a node for d, and returns the number of events when all have come.
func (x *dispatcher) apply(ctx context.Context, node string, d time.Duration) (events int64, err error) {
	nodeName := []framing.Field{{Label: "spec.nodeName", Paths: [][]string{{"spec", "nodeName"}}}}
	template, err := framing.NewScanner(framing.JSON, nodeName).Event([]byte(`{"type":"MODIFIED","object":` +
		`{"metadata":{"name":"pod","namespace":"bench","resourceVersion":"2"},"spec":{"nodeName":"` + node + `"}}}` + "\n"))
	if err != nil {
		return 0, err
	}
	const backlog = 128 // events; a longer one would measure the garbage collector
	start := time.Now()
	for rv := uint64(2); ctx.Err() == nil && (events%backlog != 0 || time.Since(start) < d); rv++ {
		o := *template.Object
		o.ResourceVersion = rv
		ev := template
		ev.Object, ev.ResourceVersion = &o, rv
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
