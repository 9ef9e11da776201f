//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

func http2StalledSection(o *Options) *section {
	columns := []column{
		{"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6}, {"p99.9 ms", unitP999, 1e-6}, {"CPU µs/delivery", unitCPU, 1e-3},
	}
	return &section{
		bench: "HTTP2Stalled",
		title: fmt.Sprintf("HTTP/2 streams that do not read, on connections of %d watches: latency of the others",
			mostStreams),
		note: fmt.Sprintf("%d connections. Stalled = streams of each that give no window back. "+
			"A window has 64 KiB, about 35 events. "+
			"watchfan keeps %d more for each (--client-buffer-frames), kube-apiserver about 10. "+
			"After the window the stalled streams read on; the last three columns are as in the part stalled.",
			o.http2StalledConnections(), o.StalledBound),
		columns: append(slices.Clone(columns), column{"ended", "ended", 1}, column{"caught up", "caught-up", 1},
			column{"silent", "silent", 1}),
		costs: columns,
	}
}

// http2StalledConnections returns the number of connections of the part.
func (o *Options) http2StalledConnections() int { return max(o.StalledClients/mostStreams, 1) }

// http2Stalled measures one peer with no stalled stream, and with one on each connection.
func (p *program) http2Stalled(ctx context.Context, st *stage) error {
	if !st.peer.tls {
		return nil
	}
	for _, stalled := range []int{0, 1} {
		x := sample{peer: st.peer, axes: []axis{{"stalled", strconv.Itoa(stalled)}, {"streams", strconv.Itoa(mostStreams)}}}
		x.metrics, x.err = p.measureHTTP2Stalled(ctx, st, stalled)
		if err := p.note(ctx, st, partHTTP2Stalled, x, 7); err != nil {
			return err
		}
	}
	return nil
}

// measureHTTP2Stalled measures mostStreams-1 watchers on each connection, beside so many stalled
// ones.
func (p *program) measureHTTP2Stalled(ctx context.Context, st *stage, stalled int) ([]metric, error) {
	o := *p.opts
	o.Warmup = stalledFill
	s := &session{stage: st, opts: &o, say: p.say}
	defer s.disband()
	var err error
	if s.fleet, err = s.newFleet([]filter{everything}, o.readers()); err != nil {
		return nil, err
	}
	healthy := (mostStreams - 1) * o.http2StalledConnections()
	s.fleet.h2 = &multiplex{mostStreams - 1, smallWindows}
	if err := s.fleet.grow(ctx, healthy, st.book().seqs); err != nil {
		return nil, err
	}
	deaf, err := s.fleet.addDeaf(ctx, stalled, st.book().seqs)
	if err != nil {
		return nil, err
	}
	r := s.measure(ctx, healthy, o.offered(o.pace(), healthy))
	if r.err != nil {
		return nil, r.err
	}
	fates, err := deaf.hear(ctx, st.book().seqs)
	return append(r.metrics(), metric{"ended", float64(fates[ended])}, metric{"caught-up", float64(fates[caughtUp])},
		metric{"silent", float64(fates[silent])}), err
}

// deafStreams are streams that do not read, beside a fleet.
type deafStreams []deafStream

type deafStream struct {
	*stream
	on *streams
	r  *reader
}

// addDeaf opens so many watches that do not read on each connection. Nothing may be written
// meanwhile.
func (f *fleet) addDeaf(ctx context.Context, each int, seqs []uint64) (all deafStreams, err error) {
	rv, err := listVersion(ctx, f.endpoint, f.coll)
	if err != nil || each == 0 {
		return nil, err
	}
	for i, c := range f.conns {
		requests := slices.Repeat([]watchRequest{f.request(0, rv)}, each)
		opened, err := c.open(ctx, f.reader(i), requests, seqs, false)
		if err != nil {
			return nil, err
		}
		for _, s := range opened {
			all = append(all, deafStream{s, c, f.reader(i)})
		}
	}
	return all, nil
}

// hear lets all read on, and counts their fates as sleepers.wake does. seqs are the latest writes.
func (all deafStreams) hear(ctx context.Context, seqs []uint64) (count [fates]int, err error) {
	const patience = 5 * time.Second // without an event
	for _, s := range all {
		if err := s.on.hear(s.stream, s.r); err != nil {
			return count, err
		}
	}
	for before, since := uint64(0), time.Now(); ; err = sleep(ctx, 20*time.Millisecond) {
		var came uint64
		clear(count[:])
		for _, s := range all {
			f, n, wrong := s.fate(seqs)
			count[f]++
			came += n
			err = errors.Join(err, wrong)
		}
		if came != before {
			before, since = came, time.Now()
		}
		if err != nil || count[silent] == 0 || time.Since(since) > patience {
			return count, err
		}
	}
}

// fate returns a stream's fate so far, and a number that grows with its events. An event that was
// missing before the end is an error.
func (s deafStream) fate(seqs []uint64) (f fate, events uint64, err error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, n := range s.last {
		events += n
	}
	switch reset := (*resetError)(nil); {
	case slices.Equal(s.last, seqs):
		return caughtUp, events, nil
	case s.stream.ended == nil:
		return silent, events, nil
	case !errors.Is(s.stream.ended, errEnded) && !errors.As(s.stream.ended, &reset):
		err = fmt.Errorf("stalled stream: %w", s.stream.ended)
	}
	return ended, events, err
}
