//go:build linux

// Command bench measures the cost of fanning a watch out. It compares kube-apiserver itself with
// watchfan in front of it: the same watchers and the same writes, on this machine, in one run.
// README.md explains each number.
//
//	bench run      measures, prints tables and Go benchmark lines
//	bench list     does the same for lists of all pods
//	bench scale    compares joins and memory in clusters of several sizes
//	bench guard      replays agents that ask too much
//	bench demo     shows a thousand watchers live
//
// It starts the servers itself, on loopback, and stops them:
//
//	writer ──HTTP/2 PUT──▶ kube-apiserver ──▶ watchfan ──▶ watchers    bench: writer, watchers,
//	                        └────────────────────────────▶ watchers    clock, /proc of each server
//
// # Packages
//
// Arrows go one way, from left to right:
//
//	main ──▶ server ──▶ report ──▶ load ──▶ measure
//	(parts)  (children) (tables)   (clients) (instruments)
//
// Each command has a file of its name, and each part of `bench run` has one: traffic, stalled,
// crowd, http2, through, storm, egress, nodes and resync. All parts use run and session.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/watchfan/watchfan/bench/server"
)

const usage = `bench measures the cost of fanning a Kubernetes watch out, next to kube-apiserver.

  bench run [flags]     measures, prints tables and Go benchmark lines
  bench list [flags]    does the same for lists of all pods
  bench scale [flags]   compares joins and memory in clusters of several sizes
  bench guard [flags]   replays agents that ask too much
  bench demo [flags]    shows a thousand watchers live

bench run -h, bench list -h, bench scale -h, bench guard -h and bench demo -h list the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

var commands = map[string]func(ctx context.Context, args []string, stdout, stderr io.Writer) error{
	"run": runBench, "list": runList, "scale": runScale, "guard": runGuard, "demo": runDemo,
	"floor": server.RunFloorServer, stormFrontName: runStormFront, // internal: run starts them
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if command := commands[args[0]]; command != nil {
			return command(ctx, args[1:], os.Stdout, os.Stderr)
		}
	}
	fmt.Fprint(os.Stderr, usage)
	if len(args) > 0 && args[0] != "help" && args[0] != "-h" && args[0] != "--help" {
		return fmt.Errorf("unknown command %q", args[0])
	}
	return nil
}
