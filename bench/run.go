//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// runBench is `bench run`: every peer in turn, as often as there are rounds, and a report of
// whatever was measured even if something failed.
func runBench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := defaults()
	if err := parseOptions("run", o, args, stderr); err != nil {
		return err
	}
	// The goroutine that takes acknowledgements must not wait for one that reads watches: leave it
	// to the kernel, which is fair, to share the cores between them.
	runtime.GOMAXPROCS(max(runtime.NumCPU(), o.Readers+2))

	start := time.Now()
	var results []result
	var err error
	p := newProgram(o, nil)
	if p.wants(partTraffic) {
		results, err = measureAll(ctx, o, stderr)
	}
	if err == nil {
		err = measureSections(ctx, p, start, stderr)
	}
	failed, cases := countCases(results, p)
	if cases == 0 {
		return err
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d cases failed", failed, cases))
	}
	subtractWrites(results)
	c := newConditions(o)
	c.add("took", clock(time.Since(start)))
	return report(stdout, o.Out, c, err, func(w io.Writer) { writeFigures(w, results, p) })
}

// countCases counts the cases of traffic and of all sections, and those of them that failed.
func countCases(results []result, p *program) (failed, all int) {
	all = len(results)
	for _, r := range results {
		if r.err != nil {
			failed++
		}
	}
	for _, s := range p.inOrder() {
		failed += s.failed()
		all += len(s.samples)
	}
	return failed, all
}

// writeFigures writes all tables and then all benchmark lines.
func writeFigures(w io.Writer, results []result, p *program) {
	if len(results) > 0 {
		writeTables(w, results)
		fmt.Fprintln(w)
	}
	var disturbed []float64
	for _, s := range p.inOrder() {
		s.writeTables(w)
		disturbed = append(disturbed, s.values("others-cpu-%")...)
	}
	writeDisturbance(w, disturbed)
	fmt.Fprintln(w)
	writeBenchmarks(w, results)
	for _, s := range p.inOrder() {
		s.writeBenchmarks(w)
	}
}

// measureSections measures the parts beside the traffic, as often as they are to be.
func measureSections(ctx context.Context, p *program, start time.Time, stderr io.Writer) error {
	guess := p.opts.sectionsEstimate()
	for round := range p.opts.SectionRounds {
		begun := time.Now()
		p.say = func(format string, args ...any) {
			left := max(guess-time.Since(begun), 0) + guess*time.Duration(p.opts.SectionRounds-round-1)
			fmt.Fprintf(stderr, "%s elapsed, about %s left  round %d/%d  %s\n",
				clock(time.Since(start)), clock(left), round+1, p.opts.SectionRounds, fmt.Sprintf(format, args...))
		}
		if err := p.run(ctx, round+1); err != nil {
			return err
		}
		guess = time.Since(begun)
	}
	return nil
}

// report prints the conditions of a run and its figures, and publishes them under a name. err,
// which it returns, is why they are not complete.
func report(stdout io.Writer, name string, c conditions, err error, figures func(io.Writer)) error {
	var text bytes.Buffer
	c.write(&text)
	if err != nil {
		fmt.Fprintf(&text, "\nINCOMPLETE: %v\n", err)
	}
	fmt.Fprintln(&text)
	figures(&text)
	stdout.Write(text.Bytes())
	return errors.Join(err, publish(name, text.Bytes()))
}

// publish keeps a report under bench/results.
func publish(name string, report []byte) error {
	if name == "" {
		return nil
	}
	dir := filepath.Join("bench", "results")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, time.Now().Format(time.DateOnly)+"-"+name+".txt"), report, 0o644)
}

// measureAll runs the sessions: A B C, A B C, … so that a machine that changes its mind does so for
// everyone. The floors come last in each round, when it is known what they are to be measured with.
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

// estimate guesses how long one session takes, until one has shown it.
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

// clock writes a duration as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
