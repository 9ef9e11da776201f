//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// measureAll runs the sessions in the order A B C, A B C, …, to spread a change of the machine's
// speed over all peers. The floors come last in each round, because they repeat the rates of the
// others.
func measureAll(ctx context.Context, o *Options, stderr io.Writer) (results []result, err error) {
	turns := slices.Clone(o.Peers)
	for _, floor := range []peer{floorTLS, floorBare} {
		if !o.Mixed && slices.Contains(o.Peers, peer{watchfanBare.name, floor.tls}) {
			turns = append(turns, floor)
		}
	}
	start := time.Now()
	guess := make([]time.Duration, len(turns)) // how long a peer's session takes
	for i, p := range turns {
		guess[i] = o.estimate(p)
	}
	for i := range o.Rounds * len(turns) {
		round, turn := 1+i/len(turns), i%len(turns)
		later := o.sectionsEstimate() * time.Duration(o.SectionRounds)
		for j := i + 1; j < o.Rounds*len(turns); j++ {
			later += guess[j%len(turns)]
		}
		begun := time.Now()
		say := func(format string, args ...any) {
			left := max(guess[turn]-time.Since(begun), 0) + later
			fmt.Fprintf(stderr, "%s elapsed, about %s left  round %d/%d  %v: %s\n",
				clock(time.Since(start)), clock(left), round, o.Rounds, turns[turn], fmt.Sprintf(format, args...))
		}
		var some []result
		if p := turns[turn]; p.name == floorBare.name {
			some, err = runFloor(ctx, o, p, floorTwins(results, p, round, o.AllFloors), round, say)
		} else {
			some, err = runSession(ctx, o, p, round, say)
		}
		results = append(results, some...)
		if err != nil {
			return results, err
		}
		guess[turn] = time.Since(begun)
	}
	return results, nil
}

// estimate guesses the duration of a session. The first session replaces the guess.
func (o *Options) estimate(p peer) time.Duration {
	const start, perWatcher = 8 * time.Second, 2 * time.Millisecond
	cases := 0
	if p.name == floorBare.name {
		return start/4 + time.Duration(len(o.Rates))*(o.Warmup+o.Window)
	}
	for _, n := range o.Clients {
		if n > 0 || p == direct {
			cases += len(o.Rates)
		}
	}
	return start + time.Duration(o.Clients[0])*perWatcher + time.Duration(cases)*(o.Warmup+o.Window)
}

// runSession measures all cases of one peer and returns their results. A case that fails is a
// result with an error, and the next case starts with new watchers. An error means that the session
// could not continue.
func runSession(ctx context.Context, o *Options, p peer, round int, say func(string, ...any)) ([]result, error) {
	say("starting")
	st, err := newStage(ctx, o, p)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", p, err)
	}
	defer st.stop()
	s := &session{stage: st, opts: o, round: round, say: say}
	defer s.disband()
	for i, clients := range o.Clients {
		if clients == 0 && p != direct {
			continue // writes do not pass through the proxy
		}
		if err := s.gather(ctx, clients, i == 0); err != nil {
			return s.done, fmt.Errorf("%v: %w", p, err)
		}
		for _, r := range o.Rates {
			r = o.offered(r, clients)
			say("%d watchers, %v writes/s", clients, r)
			res := s.measure(ctx, clients, r)
			if ctx.Err() != nil {
				return s.done, ctx.Err()
			}
			s.done = append(s.done, res)
			if res.err != nil {
				say("FAILED: %v", res.err)
				if err := s.gather(ctx, clients, false); err != nil {
					return s.done, fmt.Errorf("%v: %w", p, err)
				}
			}
		}
	}
	return s.done, nil
}

// subtractWrites sets plain in the results of paced cases: the CPU time of the servers for the same
// writes in the same round without a watcher. An unpaced case has no such twin, because its
// watchers set the pace.
func subtractWrites(results []result) {
	for i := range results {
		for j := range results {
			r, twin := &results[i], &results[j]
			paced := !r.idle && r.clients > 0 && r.rate != unpaced && r.peer.name != floorBare.name
			plain := twin.peer == direct && twin.clients == 0 && twin.err == nil
			if paced && plain && twin.rate == r.rate && twin.round == r.round {
				r.plain = time.Duration(float64(serversCPU(&twin.Usage)) / float64(twin.writes) * float64(r.writes))
			}
		}
	}
}
