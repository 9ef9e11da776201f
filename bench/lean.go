//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
)

// leanParameter asks for objects without metadata.managedFields (KEP-5958).
const leanParameter = ";drop=metadata.managedFields"

// accept returns the Accept header of a client, lean or not.
func accept(mediaType string, lean bool) string {
	if lean {
		return mediaType + leanParameter
	}
	return mediaType
}

func leanSection(o *Options) *section {
	s := &section{
		bench: "Lean",
		title: fmt.Sprintf("Lean watchers beside whole ones, TLS: status updates of pods with managed fields, %v/s",
			o.LeanRate),
		note: "A lean watcher asks for objects without metadata.managedFields. It takes no event that has them. " +
			"Lean and whole watchers take turns, over HTTP/2 on each connection. " +
			"kube-apiserver ignores the parameter up to 1.37, so it has rows of whole watchers alone. " +
			"Bytes = of a delivery on the wire, without TLS, on average.",
		columns: []column{
			{"deliveries/s", unitDeliveries, 1}, {"CPU µs/delivery", unitCPU, 1e-3}, {"all servers", unitAllCPU, 1e-3},
			{"bytes", unitBytes, 1}, {"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6},
			{"RSS MiB", "RSS-B", 1.0 / (1 << 20)},
		},
	}
	n := o.LeanClients
	for _, p := range []protocol{http11, http20} {
		whole := leanCase{p, 2 * n, 0}.axes()
		s.goals = append(s.goals,
			goal{fmt.Sprintf("%s: CPU per delivery, half of the watchers lean / none", p), unitCPU,
				leanCase{p, n, n}.axes(), whole, 1.1},
			goal{fmt.Sprintf("%s: CPU per delivery, all lean / none", p), unitCPU, leanCase{p, 0, 2 * n}.axes(), whole, 0},
			goal{fmt.Sprintf("%s: bytes of a delivery, all lean / none", p), unitBytes, leanCase{p, 0, 2 * n}.axes(), whole, 0})
	}
	return s
}

// A leanCase is a number of watchers of each form.
type leanCase struct {
	protocol    protocol
	whole, lean int
}

// leanCases returns the cases of the part for a peer.
func (o *Options) leanCases(p peer) (cases []leanCase) {
	n := o.LeanClients
	for _, protocol := range []protocol{http11, http20} {
		cases = append(cases, leanCase{protocol, 2 * n, 0})
		if p != direct {
			cases = append(cases, leanCase{protocol, n, n}, leanCase{protocol, 0, 2 * n})
		}
	}
	return cases
}

func (c leanCase) axes() []axis {
	return []axis{{"protocol", string(c.protocol)}, {"whole", strconv.Itoa(c.whole)}, {"lean", strconv.Itoa(c.lean)}}
}

// isLean reports whether watcher i is lean.
func (c leanCase) isLean(i int) bool { return c.lean > 0 && (c.whole == 0 || i%2 == 1) }

// lean measures one peer, over TLS. Each round begins with another case, because the first one finds
// servers that have just started.
func (p *program) lean(ctx context.Context, st *stage) error {
	if !st.peer.tls {
		return nil
	}
	cases := p.opts.leanCases(st.peer)
	for i := range cases {
		c := cases[(i+p.round-1)%len(cases)]
		x := sample{peer: st.peer, axes: c.axes()}
		x.metrics, x.err = p.measureLean(ctx, st, c)
		if err := p.note(ctx, st, partLean, x, 4); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) measureLean(ctx context.Context, st *stage, c leanCase) ([]metric, error) {
	s := &session{stage: st, opts: p.opts, say: p.say}
	defer s.disband()
	var err error
	if s.fleet, err = s.newFleet([]filter{everything}, p.opts.readers()); err != nil {
		return nil, err
	}
	s.fleet.lean = c.isLean
	if c.protocol == http20 {
		s.fleet.h2 = &multiplex{p.opts.Streams, clientGoSteps}
	}
	n := c.whole + c.lean
	if err := s.fleet.grow(ctx, n, st.book().seqs); err != nil {
		return nil, err
	}
	r := s.measure(ctx, n, p.opts.offered(p.opts.LeanRate, n))
	if r.err != nil {
		return nil, r.err
	}
	return r.metrics(), nil
}
