//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"
)

// runBench is `bench run`. It measures every peer in each round, and reports what was measured even
// if something failed.
func runBench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := defaults()
	if err := parseOptions("run", o, args, stderr); err != nil {
		return err
	}
	// The goroutine that takes acknowledgements must not wait for one that reads watches. With more
	// threads than cores, the kernel shares the cores fairly between them.
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
	err = report(stdout, o.Out, c, err, func(w io.Writer) { writeFigures(w, results, p) })
	return errors.Join(err, publishTimelines(o.Out, p.sections[partStorm].timelines()))
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

// measureSections measures the parts other than traffic, in each of their rounds.
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
