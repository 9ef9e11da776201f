// Command watchfan is a Kubernetes watch fan-out proxy: it watches each resource once, however many
// clients watch it through it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"go.uber.org/automaxprocs/maxprocs"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/assess"
	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/plugin"
)

const usage = `watchfan serves the Kubernetes API to many watching clients from one watch per resource.

Usage:
  watchfan [flags]                        serve, until SIGTERM
  watchfan top [flags]                    show the watches of a running watchfan, the slowest first, and why they are slow
  watchfan explain [ID]                   say why one watch is slow, and what to do
  watchfan assess [flags]                 estimate what watchfan would change for a cluster
  watchfan check [flags]                  say which cluster would be served, and with whose rights
  watchfan config [flags]                 print the configuration in effect, or its errors
  watchfan completion bash|zsh|fish       print a script that completes commands and flags
  watchfan version [-o json|yaml]         print the version
  watchfan help [COMMAND|GROUP of flags]  print this help, or a part of it
`

// commands are what the first argument can name. Each takes the other arguments and returns the
// exit code.
var commands map[string]func(args []string) int

func init() { // help reads the map
	commands = map[string]func(args []string) int{
		"top":        func(args []string) int { return diagnose.Top(args, os.Stdout, os.Stderr) },
		"explain":    func(args []string) int { return diagnose.Explain(args, os.Stdout, os.Stderr) },
		"assess":     func(args []string) int { return assess.Run(untilInterrupted(), args, os.Stdout, os.Stderr) },
		"check":      check,
		"config":     config,
		"completion": completion,
		"version":    version,
		"help":       help,
	}
}

func main() {
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == plugin.Name {
		os.Exit(plugin.Run(untilInterrupted(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args[1:]))
}

// run returns the exit code: 0 after a clean stop, 1 when serving was impossible, 2 for wrong
// flags.
func run(args []string) int {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return serve(args)
	}
	if command, ok := commands[args[0]]; ok {
		return command(args[1:])
	}
	return wrong(fmt.Errorf("%q is no command: give one of %s, or flags only, to serve", args[0], strings.Join(slices.Sorted(maps.Keys(commands)), ", ")))
}

// wrong reports a wrong command line.
func wrong(err error) int {
	fmt.Fprintf(os.Stderr, "%v\nsee watchfan --help\n", err)
	return 2
}

func serve(args []string) int {
	opts, code, ok := options(args, "")
	if !ok {
		return code
	}
	log, flush := opts.NewLogger(os.Stderr)
	defer flush()
	if err := forbidCores(); err != nil {
		log.Warn("Left core files possible", "err", err)
	}
	if _, err := maxprocs.Set(); err != nil {
		log.Warn("Left GOMAXPROCS as it was", "err", err)
	}
	opts.Version = readBuild().Version
	log.Info("Started watchfan", "version", opts.Version, "pid", os.Getpid(), "maxProcs", runtime.GOMAXPROCS(0))

	server, err := proxy.New(opts, log)
	if err == nil {
		err = server.Run(stopContext(log, flush))
	}
	if err != nil {
		log.Error("Watchfan stopped", "err", err)
		return 1
	}
	return 0
}

// options returns the valid options of a command line, or the exit code when there are none. usage
// is the answer to --help; "" is that of watchfan itself.
func options(args []string, usage string) (opts proxy.Options, code int, ok bool) {
	opts, err := proxy.ParseFlags(args)
	switch {
	case errors.Is(err, flag.ErrHelp) && usage != "":
		fmt.Print(usage)
		return opts, 0, false
	case errors.Is(err, flag.ErrHelp):
		return opts, help(nil), false
	case errors.Is(err, proxy.ErrVersion):
		return opts, version(nil), false
	}
	if err == nil {
		err = opts.Validate()
	}
	if err != nil {
		return opts, wrong(err), false
	}
	return opts, 0, true
}

const configUsage = `watchfan config prints the configuration in effect, as a file for --config, or what is wrong with it.

Usage: watchfan config [flags]

The flags are those of watchfan; watchfan help lists them. Each has a field in the file, and flags win
over the file. Only the file has views. An error names the flag, or the file, the line and the field:

  watchfan config --idle-timeout=1h > config.yaml      write a file with all settings
  watchfan config --config config.yaml                 check a file, and add the defaults
`

func config(args []string) int {
	opts, code, ok := options(args, configUsage)
	if !ok {
		return code
	}
	if err := opts.WriteConfig(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func help(args []string) int {
	switch {
	case len(args) == 0:
		fmt.Print(usage)
		proxy.PrintFlags(os.Stdout, "")
	case args[0] != "help" && commands[args[0]] != nil:
		return commands[args[0]]([]string{"--help"})
	case slices.Contains(proxy.FlagGroups(), args[0]):
		proxy.PrintFlags(os.Stdout, args[0])
	default:
		return wrong(fmt.Errorf("no help on %q: give a command, or a group of flags: %s", args[0], strings.Join(proxy.FlagGroups(), ", ")))
	}
	return 0
}

// untilInterrupted returns a context that ends with the first Ctrl-C.
func untilInterrupted() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second ends the process
	return ctx
}

// stopContext returns a context that the first SIGINT or SIGTERM ends. The second ends the process
// after flush.
func stopContext(log *slog.Logger, flush func()) context.Context {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		log.Info("Received a signal", "signal", (<-signals).String())
		stop()
		log.Warn("Received a second signal, exiting at once", "signal", (<-signals).String())
		flush()
		os.Exit(1)
	}()
	return ctx
}
