// Command watchfan is a Kubernetes watch fan-out proxy: it watches each resource once, however many
// clients watch it through it.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/automaxprocs/maxprocs"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/operate/assess"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/operate/enrol"
	"github.com/watchfan/watchfan/proxy/operate/logging"
	"github.com/watchfan/watchfan/proxy/operate/plugin"
	"github.com/watchfan/watchfan/proxy/operate/preview"
)

func main() {
	root := newRoot()
	if filepath.Base(os.Args[0]) == plugin.Name {
		root = plugin.Command()
	}
	os.Exit(run(root, os.Args[1:]))
}

// exitCode is an error that has been reported.
type exitCode int

func (exitCode) Error() string { return "reported" }

// run runs a command line. It returns the exit code: 0 after a clean stop, 1 if the command failed, and
// 2 if the command line or the configuration is wrong.
func run(root *cobra.Command, args []string) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(suggest)
	root.SetArgs(args)
	began := false
	prepare(root, &began)
	c, err := root.ExecuteC()
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case began:
		fmt.Fprintln(os.Stderr, request.ShownError(err))
		return 1
	}
	fmt.Fprintf(os.Stderr, "%v\nsee %s --help\n", err, c.CommandPath())
	return 2
}

// prepare makes a command and those below it set began when they begin, and end when they are interrupted.
func prepare(c *cobra.Command, began *bool) {
	if work := c.RunE; work != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			*began = true
			if c.HasParent() { // serving has stopContext
				ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
				context.AfterFunc(ctx, stop) // the second ends the process
				c.SetContext(ctx)
			}
			if err := work(c, args); err == nil || c.Context().Err() == nil {
				return err
			}
			return errors.New("interrupted")
		}
	}
	for _, below := range c.Commands() {
		prepare(below, began)
	}
}

// suggest names the flag that was probably meant by an unknown one.
func suggest(c *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	name, _, _ := strings.Cut(cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName()), "=")
	flags := cobra.Command{SuggestionsMinimumDistance: 2}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	if near := flags.SuggestionsFor(name); len(near) > 0 {
		return fmt.Errorf("%w: did you mean --%s?", err, strings.Join(near, " or --"))
	}
	return err
}

// newRoot returns the command watchfan.
func newRoot() *cobra.Command {
	flags := proxy.NewFlags()
	root := &cobra.Command{
		Use:     "watchfan",
		Long:    "watchfan serves the Kubernetes API to many watching clients from one watch per resource.",
		Version: readBuild().String(),
		RunE:    func(*cobra.Command, []string) error { return serve(flags.Options) },
	}
	check, config := newCheck(flags), newConfig(flags)
	for _, c := range []*cobra.Command{root, check, config} {
		c.Flags().AddFlagSet(flags.Table.Flags())
		c.MarkFlagsMutuallyExclusive("log-level", "v")
		c.PreRunE = func(*cobra.Command, []string) error {
			if err := flags.Complete(); err != nil {
				return err
			}
			return flags.Validate()
		}
	}
	root.AddCommand(diagnose.Top(), diagnose.Explain(), diagnose.Observed(), diagnose.Consumers(), assess.Command(),
		preview.Command(), enrol.Keeper(), check, config, newVersion())
	root.InitDefaultCompletionCmd() // for help
	root.SetHelpCommand(newHelp(root, flags.Table))

	usage := root.UsageFunc()
	root.SetUsageFunc(func(c *cobra.Command) error {
		switch c {
		case root:
			printUsage(c, flags.Table)
		case check, config:
			fmt.Fprintf(c.OutOrStderr(), "Usage:\n  %s\n\nThe flags are those of watchfan.\n", c.UseLine())
		default:
			return usage(c)
		}
		return nil
	})
	return root
}

// printUsage prints the commands, and the flags of the root.
func printUsage(root *cobra.Command, flags *option.Table) {
	w := root.OutOrStderr()
	fmt.Fprint(w, "Usage:\n  watchfan [flags]             serve, until SIGTERM\n  watchfan COMMAND [flags]\n\nCommands:\n")
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			fmt.Fprintf(w, "  %-11s %s\n", c.Name(), c.Short)
		}
	}
	flags.PrintHelp(w, "")
	fmt.Fprint(w, "  --version\n      print the version and exit\n")
}

// newHelp returns the command help, which also knows the groups of the root's flags.
func newHelp(root *cobra.Command, flags *option.Table) *cobra.Command {
	topics := flags.Groups()
	for _, c := range root.Commands() {
		topics = append(topics, c.Name())
	}
	return &cobra.Command{
		Use:       "help [COMMAND|GROUP of flags]",
		Short:     "Print this help, or a part of it",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: topics,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && slices.Contains(flags.Groups(), args[0]) {
				flags.PrintHelp(c.OutOrStdout(), args[0])
				return nil
			}
			topic, _, err := root.Find(args)
			if err != nil {
				return err
			}
			return topic.Help()
		},
	}
}

func serve(opts proxy.Options) error {
	// Who reads the log may end before watchfan does, as tee does on Ctrl-C. The next line would end the process,
	// and cut every watch. So would an audit log on standard output. A plugin of the kubeconfig would inherit it if
	// the signal were ignored, and nobody has to receive it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	log, flush := logging.New(opts.LogLevel, opts.LogFormat, os.Stderr)
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
		return exitCode(1)
	}
	return nil
}

const configUsage = `watchfan config prints the configuration in effect, as a file for --config, or what is wrong with it.

Each flag of watchfan has a field in the file, and flags win over the file. Only the file has views and clients.
An error names the flag, or the file, the line and the field:

  watchfan config --idle-timeout=1h > config.yaml      write a file with all settings
  watchfan config --config config.yaml                 check a file, and add the defaults`

func newConfig(flags *proxy.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print the configuration in effect, or its errors",
		Long:  configUsage,
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return flags.WriteConfig(c.OutOrStdout()) },
	}
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
