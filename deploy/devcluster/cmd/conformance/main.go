// Command conformance runs Kubernetes' own end-to-end specs against the API
// server of a kubeconfig: those of specs.txt, which need neither nodes nor
// controllers.
//
// The specs are compiled in from k8s.io/kubernetes/test/e2e and run as they are.
// Only the suite around them is ours: Kubernetes' own first waits for nodes, for
// system pods and for service accounts, and after each spec for its namespace to
// be gone. Nothing here deletes a namespace, so the cluster is best one that is
// thrown away.
//
// The specs are dealt out to several processes, each a [worker], because most of
// their time is spent waiting and a process runs one at a time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

const usage = `conformance runs Kubernetes' own end-to-end specs that need no nodes.

Usage: conformance [flags]

`

// workerCommand as the only argument makes the process a worker.
const workerCommand = "worker"

// Options are the flags.
type Options struct {
	Kubeconfig  string
	ContentType string
	Kubectl     string
	Focus       string
	Parallel    int
	Timeout     time.Duration
	List        bool
}

func (o *Options) addFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", os.Getenv(clientcmd.RecommendedConfigPathEnvVar), "`FILE` that names the API server; its user needs every right")
	fs.StringVar(&o.ContentType, "content-type", "application/json", "media `TYPE` that the specs' typed clients ask for; application/vnd.kubernetes.protobuf is the other one")
	fs.StringVar(&o.Kubectl, "kubectl", besideExecutable("kubectl"), "kubectl's `FILE`")
	fs.StringVar(&o.Focus, "focus", "", "run only the specs whose text matches this `REGEXP`")
	fs.IntVar(&o.Parallel, "parallel", 2*runtime.NumCPU(), "`NUMBER` of specs to run at a time")
	fs.DurationVar(&o.Timeout, "timeout", 15*time.Minute, "`DURATION` after which the specs still running fail")
	fs.BoolVar(&o.List, "list", false, "print the specs and exit")
}

func main() {
	switch err := run(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errFlags):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "conformance: %v\n", err)
		os.Exit(1)
	}
}

// errFlags says that the flags are wrong; the flag package has printed how.
var errFlags = errors.New("bad flags")

func run(args []string) error {
	if len(args) == 1 && args[0] == workerCommand {
		return work(os.Stdin, os.Stdout)
	}
	var opts Options
	fs := flag.NewFlagSet("conformance", flag.ContinueOnError)
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), usage)
		fs.PrintDefaults()
	}
	opts.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errFlags
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}

	specs, err := focused(opts.Focus)
	if err != nil {
		return err
	}
	if opts.List {
		fmt.Println(strings.Join(specs, "\n"))
		return nil
	}
	switch {
	case opts.Kubeconfig == "":
		return errors.New("--kubeconfig is required")
	case opts.Parallel < 1:
		return errors.New("--parallel must be at least 1")
	}
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer restore()
	return runSpecs(ctx, opts, specs)
}

// focused returns the specs of the list that match a regular expression.
func focused(expression string) ([]string, error) {
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("--focus: %w", err)
	}
	var specs []string
	for _, s := range listed() {
		if re.MatchString(s) {
			specs = append(specs, s)
		}
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("--focus %q matches no spec", expression)
	}
	return specs, nil
}

// besideExecutable returns the path of a program in this one's directory.
func besideExecutable(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}
