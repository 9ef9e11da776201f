//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

func stalledSection(o *Options) *section {
	return &section{
		bench: "Stalled",
		title: fmt.Sprintf("Watchers that do not read: latency of the others, of %d in all", o.StalledClients),
		note: fmt.Sprintf("h1 = a connection for each. h2 = %d watches on each connection, of which as many percent give no window back. "+
			"A stalled watcher's socket holds some tens of events, and its HTTP/2 window about 35. "+
			"watchfan keeps %d more for each (--client-buffer-frames), kube-apiserver about 10. "+
			"After the window the stalled watchers read on: ended = the stream ended, and nothing was missing before its end; "+
			"caught up = nothing was missing at all; silent = the stream neither ended nor continued.", mostStreams, o.StalledBound),
		columns: []column{
			{"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6}, {"p99.9 ms", unitP999, 1e-6},
			{"CPU µs/delivery", unitCPU, 1e-3}, {"ended", "ended", 1}, {"caught up", "caught-up", 1}, {"silent", "silent", 1},
		},
		costs: 4,
	}
}

// boundedBuffers makes watchfan end stalled watchers within the window.
func boundedBuffers(o *Options) []string {
	return []string{fmt.Sprintf("--client-buffer-frames=%d", o.StalledBound)}
}

// stalledFill is the time under load before the window: the sockets of stalled watchers fill, and
// the servers notice.
const stalledFill = 3 * time.Second

// stalled measures one peer with watchers of which some do not read, over each protocol that it has.
func (p *program) stalled(ctx context.Context, st *stage) error {
	for _, protocol := range st.peer.protocols() {
		for _, percent := range p.opts.Stalled {
			x := sample{peer: st.peer, axes: axes("protocol", protocol, "stalled", fmt.Sprint(percent, "%"))}
			x.metrics, x.err = p.measureStalled(ctx, st, protocol, percent)
			if err := p.note(ctx, st, "Stalled", x); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *program) measureStalled(ctx context.Context, st *stage, by protocol, percent int) ([]metric, error) {
	s := p.session(st)
	s.warmup = stalledFill
	defer s.disband()
	each := percent // of the hundred on each connection
	n := p.opts.StalledClients * percent / 100
	var l load
	if by == http20 {
		n = max(p.opts.StalledClients/mostStreams, 1) * each
		l = load{h2: &multiplex{mostStreams - each, smallWindows}}
	}
	if err := s.assemble(l); err != nil {
		return nil, err
	}
	healthy := max(p.opts.StalledClients-n, 1)
	if err := s.fleet.grow(ctx, healthy, st.book().seqs); err != nil {
		return nil, err
	}
	deaf, err := s.fleet.addDeaf(ctx, n, st.book().seqs)
	if err != nil {
		return nil, err
	}
	defer deaf.close()
	m, err := s.measure(ctx, p.opts.offered(p.opts.pace(), healthy))
	if err != nil {
		return nil, err
	}
	fates, err := deaf.wake(ctx, st.book().seqs)
	return append(m, metric{"stalled", float64(n)}, metric{"ended", float64(fates[ended])},
		metric{"caught-up", float64(fates[caughtUp])}, metric{"silent", float64(fates[silent])}), err
}

// sleepers are watchers that have opened a watch and do not read it.
type sleepers []*sleeper

type sleeper struct {
	*watch
	r     *reader
	hear  func() error                  // reads on from now
	end   func() (over bool, why error) // with the reader's mu
	close func()
}

// addDeaf opens n watches that do not read. Over HTTP/2 they are on the fleet's connections, as many
// on each. Over HTTP/1.1 they have connections like those of a network, which hold little: 1,460
// bytes in a segment, and a small receive buffer. Nothing may be written meanwhile.
func (f *fleet) addDeaf(ctx context.Context, n int, seqs []uint64) (all sleepers, err error) {
	rv, err := listVersion(ctx, f.endpoint, f.coll)
	if err != nil {
		return nil, err
	}
	for _, c := range f.conns {
		requests := slices.Repeat([]watchRequest{f.request(0, rv)}, n/len(f.conns))
		opened, err := c.open(ctx, f.reader, requests, seqs, false)
		if err != nil {
			return nil, err
		}
		for _, s := range opened {
			all = append(all, &sleeper{&s.watch, f.reader, func() error { return c.hear(s, f.reader) },
				func() (bool, error) { return s.ended != nil, s.ended }, func() {}})
		}
	}
	for i := 0; f.h2 == nil && i < n; i++ {
		q := f.request(i, rv)
		q.filter, q.dialer = everything, measure.Dialer{Receive: 4 << 10, Segment: 1460}
		w, early, err := q.open()
		if err != nil {
			all.close()
			return nil, err
		}
		w.last = slices.Clone(seqs)
		late := &lateWatcher{watcher: w, r: f.reader, early: early}
		all = append(all, &sleeper{&w.watch, late.r, late.hear,
			func() (bool, error) { return late.r.clients[w.sock.FD] != client(late), late.wrong }, late.close})
	}
	return all, nil
}

// A lateWatcher is a watcher whose deliveries do not count.
type lateWatcher struct {
	*watcher
	r     *reader
	early []byte // that came with the head of the answer
	heard bool   // the reader has it
	wrong error  // what it has got
}

func (w *lateWatcher) hear() error {
	w.heard = true
	return w.r.add(w, w.early)
}

func (w *lateWatcher) close() {
	if w.heard {
		w.r.remove(w)
	} else {
		w.sock.Close()
	}
}

// take implements client.
func (w *lateWatcher) take(p []byte, _ *tally) error {
	w.wrong = w.scan.feed(p, func(line []byte) error {
		_, _, err := w.event(line)
		return err
	})
	return w.wrong
}

func (all sleepers) close() {
	for _, s := range all {
		s.close()
	}
}

// A fate is the outcome of a watch that was not read.
type fate int

const (
	caughtUp fate = iota // it brought every event
	ended                // it ended, and no event was missing before its end
	silent               // it brought nothing for a while and did not end
	fates
)

// wake lets all read on at the same time, and counts their fates. A missing event before the end of
// a stream is an error. seqs are the latest writes.
func (all sleepers) wake(ctx context.Context, seqs []uint64) (count [fates]int, err error) {
	const patience = 5 * time.Second // without an event
	for _, s := range all {
		if err := s.hear(); err != nil {
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
func (s *sleeper) fate(seqs []uint64) (f fate, events uint64, err error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, n := range s.last {
		events += n
	}
	over, why := s.end()
	switch reset := (*resetError)(nil); {
	case slices.Equal(s.last, seqs):
		return caughtUp, events, nil
	case !over:
		return silent, events, nil
	case why != nil && !errors.Is(why, errEnded) && !errors.As(why, &reset):
		err = fmt.Errorf("stalled watcher: %w", why)
	}
	return ended, events, err
}
