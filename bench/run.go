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
	shareCores()

	start := time.Now()
	var err error
	p := newProgram(o)
	p.say = func(format string, args ...any) {
		fmt.Fprintf(stderr, "%s  round %d  %s\n", clock(time.Since(start)), p.round, fmt.Sprintf(format, args...))
	}
	if o.wants(partTraffic) {
		err = p.measureTraffic(ctx)
	}
	if err == nil {
		err = p.measureParts(ctx)
	}
	subtractWrites(p.section("Fanout"))
	c := newConditions(o)
	c.add("took", clock(time.Since(start)))
	return reportSections(stdout, o.Out, c, err, p.sections)
}

// shareCores keeps the goroutine that takes acknowledgements from waiting for one that reads watches.
// With more threads than cores, the kernel shares the cores fairly between them.
func shareCores() { runtime.GOMAXPROCS(max(runtime.NumCPU(), 3)) }

// reportSections reports all samples: first all tables, then all benchmark lines. err is the reason
// why they are incomplete, if any. Failed samples are errors, and without samples there is no report.
func reportSections(stdout io.Writer, name string, c conditions, err error, all []*section) error {
	failed, cases := 0, 0
	for _, s := range all {
		failed += s.failed()
		cases += len(s.samples)
	}
	if cases == 0 {
		return err
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d cases failed", failed, cases))
	}
	return report(stdout, name, c, err, func(w io.Writer) {
		var disturbed []float64
		for _, s := range all {
			s.writeTables(w)
			disturbed = append(disturbed, s.values("others-cpu-%")...)
		}
		writeDisturbance(w, disturbed)
		fmt.Fprintln(w)
		for _, s := range all {
			s.writeBenchmarks(w)
		}
	})
}
