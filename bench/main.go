// Command bench measures the cost of fanning a watch out. It compares kube-apiserver itself with
// watchfan in front of it: the same watchers and the same writes, on this machine, in one run.
// METHOD.md says how. It needs Linux.
//
// # Packages
//
// Arrows go one way, from left to right:
//
//	main ──▶ server ──▶ report ──▶ load ──▶ measure
//	(parts)  (children) (tables)   (clients) (instruments)
//
// Each command has a file of its name, and each part of `bench run` has one: traffic, stalled,
// http2, through, storm, egress, nodes and resync. All parts use run and session.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

const usage = `bench measures the cost of fanning a Kubernetes watch out, next to kube-apiserver.

  bench run [flags]     measures, prints tables and Go benchmark lines
  bench list [flags]    does the same for lists of all pods
  bench scale [flags]   compares joins and memory in clusters of several sizes
  bench guard [flags]   replays agents that ask too much
  bench views [flags]   compares unmodified programs straight and in quiet views
  bench demo [flags]    shows a thousand watchers live

bench run -h, bench list -h, bench scale -h, bench guard -h, bench views -h and bench demo -h list the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	// With more threads than cores, the kernel shares the cores fairly between the goroutine that takes
	// acknowledgements and one that reads watches.
	runtime.GOMAXPROCS(max(runtime.NumCPU(), 3))
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A benchmark is a command that measures and reports.
type benchmark interface {
	options
	sections() []*report.Section
	run(context.Context, *program) error
	out() string // the name of the report
}

var benchmarks = map[string]func() benchmark{
	"run":   func() benchmark { return new(Options) },
	"list":  func() benchmark { return new(listBench) },
	"scale": func() benchmark { return new(scaleBench) },
	"guard": func() benchmark { return new(guardBench) },
	"views": func() benchmark { return new(viewsBench) },
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	fs := flag.NewFlagSet("bench "+command, flag.ContinueOnError)
	fs.SetOutput(stderr)
	if b := benchmarks[command]; b != nil {
		return measureAll(ctx, fs, b(), args, stdout, stderr)
	}
	switch command {
	case "demo":
		return runDemo(ctx, fs, args, stdout, stderr)
	case report.FloorBare.Name: // other commands start it, and the next
		return server.RunFloorServer(os.Stdin, os.Stdout)
	case stormFrontName:
		return load.RunStormClients(ctx, os.Stdin, os.Stdout)
	}
	fmt.Fprint(stderr, usage)
	switch command {
	case "", "help", "-h", "--help":
		return nil
	}
	return fmt.Errorf("unknown command %q", command)
}

// measureAll runs a benchmark, and reports what was measured even if something failed.
func measureAll(ctx context.Context, fs *flag.FlagSet, b benchmark, args []string, stdout, stderr io.Writer) error {
	if err := parseFlags(fs, b, args); err != nil {
		return err
	}
	p := newProgram(stderr, conditions(fs), b.sections()...)
	err := b.run(ctx, p)
	if p.stage != nil {
		p.stage.Stop()
	}
	p.settings.Add("took", report.Clock(time.Since(p.start)))
	return report.Write(stdout, b.out(), p.settings, err, p.sections)
}
