//go:build linux

package main

import (
	"context"
	"io"
	"runtime"
)

// runBench is `bench run`. It measures every peer in each round, and reports what was measured even
// if something failed.
func runBench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := defaults()
	if err := parseOptions("run", o, args, stderr); err != nil {
		return err
	}
	shareCores()

	p := newProgram(stderr, fanoutSection(), idleSection())
	p.opts = o
	for _, part := range parts {
		p.sections = append(p.sections, part.section(o))
	}
	var err error
	if o.wants(partTraffic) {
		err = p.measureTraffic(ctx)
	}
	if err == nil {
		err = p.measureParts(ctx)
	}
	subtractWrites(p.section("Fanout"))
	return p.report(stdout, o.Out, newConditions(o), err)
}

// shareCores keeps the goroutine that takes acknowledgements from waiting for one that reads watches.
// With more threads than cores, the kernel shares the cores fairly between them.
func shareCores() { runtime.GOMAXPROCS(max(runtime.NumCPU(), 3)) }
