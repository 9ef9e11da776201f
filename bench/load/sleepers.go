package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// sleepers are watchers that have opened a watch and do not read it.
type sleepers []*sleeper

type sleeper struct {
	*Watch
	r     *reader
	hear  func() error // reads on from now
	over  func() bool  // whether it has ended; with the reader's mu
	close func()
}

// AddDeaf opens n watches that do not read. Over HTTP/2 they are on the fleet's connections, as many
// on each. Over HTTP/1.1 they have connections like those of a network, which hold little: 1,460
// bytes in a segment, and a small receive buffer. Nothing may be written meanwhile.
func (f *Fleet) AddDeaf(ctx context.Context, n int, seqs []uint64) (all sleepers, err error) {
	rv, err := ListVersion(ctx, f.endpoint, f.coll)
	if err != nil {
		return nil, err
	}
	for _, c := range f.conns {
		requests := slices.Repeat([]watchRequest{f.request(0, rv)}, n/len(f.conns))
		opened, err := c.open(ctx, requests, seqs, true)
		if err != nil {
			return nil, err
		}
		for _, s := range opened {
			all = append(all, &sleeper{&s.Watch, f.reader, func() error { return c.hear(s) },
				func() bool { return s.ended != nil }, func() {}})
		}
	}
	for i := 0; f.H2 == nil && i < n; i++ {
		q := f.request(i, rv)
		q.filter, q.dialer = Everything, measure.Dialer{Receive: 4 << 10, Segment: 1460}
		w, early, err := q.open()
		if err != nil {
			all.Close()
			return nil, err
		}
		w.last, w.silent = slices.Clone(seqs), true
		s := &sleeper{Watch: &w.Watch, r: f.reader, close: func() { w.sock.Close() }}
		s.over = func() bool { return s.r.clients[w.sock.FD] != client(w) }
		s.hear = func() error {
			s.close = func() { s.r.remove(w) }
			return s.r.add(w, early)
		}
		all = append(all, s)
	}
	return all, nil
}

func (all sleepers) Close() {
	for _, s := range all {
		s.close()
	}
}

// A fate is the outcome of a watch that was not read.
type fate int

const (
	CaughtUp fate = iota // it brought every event
	Ended                // it ended, and no event was missing before its end
	Silent               // it brought nothing for a while and did not end
	fates
)

// Wake lets all read on at the same time, and counts their fates. A missing event before the end of
// a stream is an error. seqs are the latest writes.
func (all sleepers) Wake(ctx context.Context, seqs []uint64) (count [fates]int, err error) {
	const patience = 5 * time.Second // without an event
	for _, s := range all {
		if err := s.hear(); err != nil {
			return count, err
		}
	}
	for before, since := uint64(0), time.Now(); ; err = Sleep(ctx, 20*time.Millisecond) {
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
		if err != nil || count[Silent] == 0 || time.Since(since) > patience {
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
	switch reset := (*resetError)(nil); {
	case slices.Equal(s.last, seqs):
		return CaughtUp, events, nil
	case !s.over():
		return Silent, events, nil
	case s.ended != nil && !errors.Is(s.ended, errEnded) && !errors.As(s.ended, &reset):
		err = fmt.Errorf("stalled watcher: %w", s.ended)
	}
	return Ended, events, err
}
