package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `Usage:
  devcluster [up] [flags]                       run a cluster until SIGINT or SIGTERM
  devcluster stop --dir DIR                     stop the one running in DIR, and wait for it
  devcluster restart-apiserver --dir DIR        stop kube-apiserver and start it again, until ready
  devcluster compact --dir DIR                  forget etcd's history up to now
  devcluster COMMAND -h                         show the flags of a command
`

func main() {
	switch err := run(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errFlags):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "devcluster: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	command := "up"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	switch command {
	case "up":
		return runUp(args)
	case "stop":
		return runStop(args)
	case "restart-apiserver":
		return runRestartAPIServer(args)
	case "compact":
		return runCompact(args)
	case etcdName: // started by up
		return runEtcd(args)
	case apiserverName: // started by up
		return runAPIServer(args)
	case "help":
		fmt.Print(usage)
		return nil
	default:
		return fmt.Errorf("unknown command %q\n\n%s", command, usage)
	}
}

func runUp(args []string) error {
	var opts Options
	if err := parseFlags("up", args, opts.AddFlags); err != nil {
		return err
	}
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, restore := signal.NotifyContext(context.Background(), signals...)
	defer restore()
	context.AfterFunc(ctx, restore) // the second signal does not wait
	return Up(ctx, opts)
}

// errFlags says that the flags are wrong; the flag package has printed how.
var errFlags = errors.New("bad flags")

// parseFlags parses the flags that add defines and allows no other argument.
func parseFlags(command string, args []string, add func(*flag.FlagSet)) error {
	fs := flag.NewFlagSet("devcluster "+command, flag.ContinueOnError)
	add(fs)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errFlags
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return nil
}

// parseDir parses the flags of a command on a running cluster.
func parseDir(command string, args []string, add func(*flag.FlagSet)) (Dir, error) {
	var dir string
	err := parseFlags(command, args, func(fs *flag.FlagSet) {
		fs.StringVar(&dir, "dir", "", "directory of the running devcluster")
		add(fs)
	})
	if err != nil {
		return "", err
	}
	if dir == "" {
		return "", errors.New("--dir is required")
	}
	return openDir(dir)
}
