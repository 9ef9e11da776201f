//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

func stalledSection(o *Options) *section {
	return &section{
		bench: "Stalled",
		title: fmt.Sprintf("Watchers that do not read: latency of the others, of %d in all", o.StalledClients),
		note: fmt.Sprintf("The socket of a stalled watcher holds some tens of events. "+
			"watchfan keeps %d more for each (--client-buffer-frames), kube-apiserver about 10. "+
			"After the window the stalled watchers read on: ended = the stream ended, and nothing was missing before its end; "+
			"caught up = nothing was missing at all; silent = the stream neither ended nor continued.", o.StalledBound),
		columns: []column{
			{"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6}, {"p99.9 ms", unitP999, 1e-6},
			{"CPU µs/delivery", unitCPU, 1e-3}, {"ended", "ended", 1}, {"caught up", "caught-up", 1}, {"silent", "silent", 1},
		},
		costs: []column{
			{"p50 ms", unitP50, 1e-6}, {"p99 ms", unitP99, 1e-6}, {"p99.9 ms", unitP999, 1e-6},
			{"CPU µs/delivery", unitCPU, 1e-3},
		},
	}
}

// stalledFill is the time under load before the window: the sockets of stalled watchers fill, and
// the servers notice.
const stalledFill = 3 * time.Second

// stalled measures one peer with watchers of which some do not read.
func (p *program) stalled(ctx context.Context, st *stage) error {
	for _, percent := range p.opts.Stalled {
		x := sample{peer: st.peer, axes: []axis{{"stalled", strconv.Itoa(percent) + "%"}}}
		x.metrics, x.err = p.measureStalled(ctx, st, p.opts.StalledClients*percent/100)
		if err := p.note(ctx, st, partStalled, x, 6); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) measureStalled(ctx context.Context, st *stage, n int) ([]metric, error) {
	o := *p.opts
	o.Warmup = stalledFill
	s := &session{stage: st, opts: &o, say: p.say}
	defer s.disband()
	healthy := o.StalledClients - n
	if err := s.gather(ctx, healthy, false); err != nil {
		return nil, err
	}
	sleepers, err := fallAsleep(ctx, st, n)
	defer sleepers.close()
	if err != nil {
		return nil, err
	}
	r := s.measure(ctx, healthy, o.offered(o.pace(), healthy))
	if r.err != nil {
		return nil, r.err
	}
	fates, err := sleepers.wake(st.book().seqs)
	if err != nil {
		return nil, err
	}
	return append(r.metrics(), metric{"stalled", float64(n)}, metric{"ended", float64(fates[ended])},
		metric{"caught-up", float64(fates[caughtUp])}, metric{"silent", float64(fates[silent])}), nil
}

// sleepers are watchers that have opened a watch and do not read it.
type sleepers []*sleeper

type sleeper struct {
	*watcher
	early []byte // read with the head of the answer
}

// fallAsleep opens n watches over connections like those of a network, which hold little: 1,460
// bytes in a segment, and a small receive buffer. Nothing may be written meanwhile.
func fallAsleep(ctx context.Context, st *stage, n int) (all sleepers, err error) {
	rv, err := listVersion(ctx, st.endpoint(), st.coll)
	if err != nil {
		return nil, err
	}
	for range n {
		w, early, err := watchRequest{
			endpoint: st.endpoint(), path: st.coll.path(), version: rv, filter: everything,
			dialer: measure.Dialer{Receive: 4 << 10, Segment: 1460},
		}.open()
		if err != nil {
			return all, err
		}
		w.last = slices.Clone(st.book().seqs)
		all = append(all, &sleeper{w, early})
	}
	return all, nil
}

func (all sleepers) close() {
	for _, w := range all {
		w.sock.Close()
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

// wake continues to read all streams at the same time, and counts their fates. A missing event
// before the end of a stream is an error. seqs are the latest writes.
func (all sleepers) wake(seqs []uint64) (count [fates]int, err error) {
	var mu sync.Mutex // guards count and err
	var wg sync.WaitGroup
	for _, w := range all {
		wg.Go(func() {
			f, failed := w.wake(seqs)
			mu.Lock()
			defer mu.Unlock()
			count[f]++
			if err == nil {
				err = failed
			}
		})
	}
	wg.Wait()
	return count, err
}

func (w *sleeper) wake(seqs []uint64) (fate, error) {
	const patience = 5 * time.Second // without a byte
	if err := w.sock.SetTimeout(patience); err != nil {
		return silent, err
	}
	// The deliveries are late by design, so none is counted.
	event := func(line []byte) error {
		_, _, err := w.event(line)
		return err
	}
	p := w.early
	for buf := make([]byte, 64<<10); ; {
		if err := w.scan.feed(p, event); errors.Is(err, errEnded) {
			return ended, nil
		} else if err != nil {
			return ended, fmt.Errorf("stalled watcher: %w", err)
		}
		if slices.Equal(w.last, seqs) {
			return caughtUp, nil
		}
		n, err := w.rw.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return silent, nil
		case err != nil:
			return ended, nil // cut off
		}
		p = buf[:n]
	}
}
