//go:build linux

// Command bench measures what it costs to fan a watch out: the same watchers and the same writes at
// kube-apiserver itself and at watchfan in front of it, on this machine, in one run. README.md says
// what each number means.
//
//	bench run      measure, print tables and Go benchmark lines (parts.go)
//	bench list     the same for lists of all pods
//	bench rolling  replace replicas one after another under their clients
//	bench demo     watch a thousand watchers live
//
// It starts the servers itself, on loopback, and ends them:
//
//	writer ──HTTP/2 PUT──▶ kube-apiserver ──▶ watchfan ──▶ watchers         bench: writer, watchers, the clock between
//	                        └────────────────────────────▶ watchers         them, and /proc of every server
//
// Goroutines: one for each reader, which reads thousands of watchers with an epoll of its own
// (fleet.go); one for each worker of the writer, and those of its net/http connection (writer.go);
// one for each server started (child.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `bench measures what it costs to fan a Kubernetes watch out, next to kube-apiserver.

  bench run [flags]     measure, print tables and Go benchmark lines
  bench list [flags]    the same for lists of all pods
  bench rolling [flags] replace replicas one after another under their clients
  bench demo [flags]    watch a thousand watchers live

bench run -h, bench list -h, bench rolling -h and bench demo -h list the flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second Ctrl-C does not wait for anything
	err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "run":
			return runBench(ctx, args[1:], os.Stdout, os.Stderr)
		case "list":
			return runList(ctx, args[1:], os.Stdout, os.Stderr)
		case "rolling":
			return runRolling(ctx, args[1:], os.Stdout, os.Stderr)
		case "demo":
			return runDemo(ctx, args[1:], os.Stdout, os.Stderr)
		case "floor": // not for people: run starts it
			return runFloorServer(ctx, args[1:], os.Stdout, os.Stderr)
		case stormFrontName: // the same
			return runStormFront(ctx, args[1:], os.Stdin, os.Stderr)
		}
	}
	fmt.Fprint(os.Stderr, usage)
	if len(args) > 0 && args[0] != "help" && args[0] != "-h" && args[0] != "--help" {
		return fmt.Errorf("unknown command %q", args[0])
	}
	return nil
}
