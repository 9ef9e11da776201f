//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/watchfan/watchfan/bench/report"
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
		fmt.Fprintf(stderr, "%s  round %d  %s\n", report.Clock(time.Since(start)), p.round, fmt.Sprintf(format, args...))
	}
	if o.wants(partTraffic) {
		err = p.measureTraffic(ctx)
	}
	if err == nil {
		err = p.measureParts(ctx)
	}
	subtractWrites(p.section("Fanout"))
	c := newConditions(o)
	c.Add("took", report.Clock(time.Since(start)))
	return report.Write(stdout, o.Out, c, err, p.sections)
}

// shareCores keeps the goroutine that takes acknowledgements from waiting for one that reads watches.
// With more threads than cores, the kernel shares the cores fairly between them.
func shareCores() { runtime.GOMAXPROCS(max(runtime.NumCPU(), 3)) }
