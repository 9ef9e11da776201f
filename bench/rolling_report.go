//go:build linux

package main

import (
	"fmt"
	"io"

	"github.com/watchfan/watchfan/bench/measure"
)

// report writes the figures so far.
func (r *rolling) report(w io.Writer) {
	var relists, gone, ends, breaks int
	for _, c := range r.clients {
		c.mu.Lock()
		relists, gone, ends, breaks = relists+c.relists, gone+c.gone, ends+c.ends, breaks+c.breaks
		c.mu.Unlock()
	}
	fmt.Fprintf(w, "clients: %d relists, %d times 410 Gone, %d watches ended properly, %d did not\n",
		relists, gone, ends, breaks)
	r.reportEvents(w)
	before, during := new(measure.Distribution), new(measure.Distribution)
	before.Add(&r.before)
	during.Add(&r.during)
	reportLatency(w, "before", before)
	reportLatency(w, "during and after", during)
	for _, s := range r.spreads {
		fmt.Fprintf(w, "connections of each replica, %s: %v, at most %.0f %% from even\n", s.when, s.conns, 100*s.awayMost())
	}
	r.reportRequests(w)
	lists := 0
	for _, x := range r.restarts {
		lists += x.requests[auditLists]
	}
	fmt.Fprintf(w, "lists of the whole collection at kube-apiserver for %d replacements: %d\n", len(r.restarts), lists)
	if during.Count == 0 {
		return
	}
	fmt.Fprintln(w)
	metrics := []metric{{"relists", float64(relists)}, {"gone", float64(gone)}, {"faults", float64(len(r.faults))}, {"lists", float64(lists)},
		{"before-p99-ns", float64(before.Quantile(.99))}, {"during-p99-ns", float64(during.Quantile(.99))}}
	if len(r.spreads) > 0 {
		metrics = append(metrics, metric{"uneven-%", 100 * r.spreads[len(r.spreads)-1].awayMost()})
	}
	writeBenchmark(w, fmt.Sprintf("BenchmarkRolling/replicas=%d/clients=%d", r.opts.Replicas, r.opts.Clients), metrics)
}

// reportEvents compares events with writes, and lists the first faults.
func (r *rolling) reportEvents(w io.Writer) {
	writes := 0
	if r.writes != nil {
		writes = r.writes.count()
	}
	fmt.Fprintf(w, "events: %d writes, %d events compared with them, %d clients missed some or were sent some twice\n",
		writes, r.events, len(r.faults))
	for _, fault := range r.faults[:min(len(r.faults), 5)] {
		fmt.Fprintf(w, "  %s\n", fault)
	}
}

func reportLatency(w io.Writer, when string, d *measure.Distribution) {
	fmt.Fprintf(w, "latency %s, from a write's being sent: p50 %s, p99 %s, p99.9 %s of %d events\n", when,
		milliseconds(d.Quantile(.5)), milliseconds(d.Quantile(.99)), milliseconds(d.Quantile(.999)), d.Count)
}

// reportRequests writes a Markdown table of the requests that reached kube-apiserver.
func (r *rolling) reportRequests(w io.Writer) {
	fmt.Fprintf(w, "\n| lists and watches at kube-apiserver |")
	for _, kind := range auditKinds {
		fmt.Fprintf(w, " %s |", kind)
	}
	fmt.Fprintf(w, " replica's end s | all clients watch again s |\n|---|")
	for range len(auditKinds) + 2 {
		fmt.Fprint(w, "---|")
	}
	row := func(name string, requests map[string]int, times string) {
		fmt.Fprintf(w, "\n| %s |", name)
		for _, kind := range auditKinds {
			fmt.Fprintf(w, " %d |", requests[kind])
		}
		fmt.Fprint(w, times)
	}
	row(fmt.Sprintf("%d replicas begin", r.opts.Replicas), r.start, " | |")
	for i, x := range r.restarts {
		row(fmt.Sprintf("replacement %d", i+1), x.requests, fmt.Sprintf(" %.1f | %.1f |", x.exit.Seconds(), x.live.Seconds()))
	}
	fmt.Fprintln(w)
}
