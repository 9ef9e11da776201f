// Command watchfan is a Kubernetes watch fan-out proxy: it watches each resource once, however many clients watch it through it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/watchfan/watchfan/proxy"
	"go.uber.org/automaxprocs/maxprocs"
	"k8s.io/klog/v2"
)

// version is set by the linker for releases; otherwise the build's own record is used.
var version string

func main() { os.Exit(run(os.Args[1:])) }

// commands are what watchfan does besides serving, by its first argument. They return the exit code.
var commands = map[string]func(args []string) int{
	"explain": explain,
	"top":     top,
}

// run returns the exit code: 0 after a clean stop, 1 when serving was impossible, 2 for wrong flags.
func run(args []string) int {
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](args[1:])
	}
	opts := proxy.NewOptions()
	fs := flag.NewFlagSet("watchfan", flag.ContinueOnError)
	opts.AddFlags(fs)
	level := slog.LevelInfo
	fs.TextVar(&level, "log-level", level, "least `LEVEL` to log: debug, info, warn or error")
	format := fs.String("log-format", "text", "`FORMAT` of the log on standard error: text or json")
	showVersion := fs.Bool("version", false, "print the version and exit")
	fs.Usage = func() {} // flag prints it for every error otherwise
	fs.SetOutput(os.Stderr)

	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("watchfan serves the Kubernetes API to many watching clients from one watch per resource.\n\nUsage: watchfan [flags]\n       watchfan top|explain [flags]   says which watches are slow, and why: see watchfan top --help")
		proxy.PrintFlags(os.Stdout, fs)
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "see watchfan --help") // flag has said why
		return 2
	case *showVersion:
		fmt.Println("watchfan", versionString())
		return 0
	case fs.NArg() > 0:
		fmt.Fprintf(os.Stderr, "watchfan takes flags only, not %q; see --help\n", fs.Arg(0))
		return 2
	case *format != "text" && *format != "json":
		fmt.Fprintf(os.Stderr, "--log-format=%s is unknown: give text or json\n", *format)
		return 2
	}
	if err := opts.Validate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}

	var handler slog.Handler = slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})
	if *format == "json" {
		handler = slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log) // client-go's
	_, _ = maxprocs.Set(maxprocs.Logger(func(format string, args ...any) { log.Info(fmt.Sprintf(format, args...)) }))
	log.Info("Starting watchfan", "version", versionString(), "pid", os.Getpid())

	server, err := proxy.New(opts, log)
	if err == nil {
		err = server.Run(stopContext(log))
	}
	if err != nil {
		log.Error("Watchfan stopped", "err", err)
		return 1
	}
	return 0
}

// stopContext returns a context that the first SIGINT or SIGTERM ends. The second ends the process.
func stopContext(log *slog.Logger) context.Context {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		log.Info("Received a signal", "signal", <-signals)
		stop()
		log.Warn("Received a second signal, exiting at once", "signal", <-signals)
		os.Exit(1)
	}()
	return ctx
}

func versionString() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision := ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = " " + s.Value
		}
	}
	return info.Main.Version + revision + " " + info.GoVersion
}
