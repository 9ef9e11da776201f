//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"

	"github.com/watchfan/watchfan/bench/report"
)

// options are the settings of a command.
type options interface {
	AddFlags(*flag.FlagSet)
	Validate() error
}

// parseOptions sets the options of a command from its arguments and validates them.
func parseOptions(command string, o options, args []string, stderr io.Writer) error {
	if err := parseFlags(command, o.AddFlags, args, stderr); err != nil {
		return err
	}
	return o.Validate()
}

// parseFlags parses the flags that add declares. Any other argument is an error.
func parseFlags(command string, add func(*flag.FlagSet), args []string, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench "+command, flag.ContinueOnError)
	fs.SetOutput(stderr)
	add(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return nil
}

// A knob is a number that a flag sets, and its bounds.
type knob struct {
	name        string
	to          *int
	least, most int
	usage       string
}

type knobs []knob

// addFlags adds a flag for each knob.
func (all knobs) addFlags(fs *flag.FlagSet) {
	for _, k := range all {
		fs.IntVar(k.to, k.name, *k.to, k.usage)
	}
}

// validate reports the first knob that is out of its bounds.
func (all knobs) validate() error {
	for _, k := range all {
		if *k.to < k.least || *k.to > k.most {
			return fmt.Errorf("--%s must be from %d to %d", k.name, k.least, k.most)
		}
	}
	return nil
}

// conditions returns the machine and the knobs of a run.
func (all knobs) conditions() report.Conditions {
	c := report.MachineConditions()
	for _, k := range all {
		c.Add(k.name, fmt.Sprint(*k.to))
	}
	return c
}

// binaries are the paths of the programs that are measured.
type binaries struct {
	Devcluster string // deploy/devcluster's
	Watchfan   string
}

// builtBinaries are the paths that make builds to.
var builtBinaries = binaries{"bin/devcluster", "bin/watchfan"}

func (b *binaries) addFlags(fs *flag.FlagSet) {
	fs.StringVar(&b.Devcluster, "devcluster", b.Devcluster, "`path` of the dev cluster's binary")
	fs.StringVar(&b.Watchfan, "watchfan", b.Watchfan, "`path` of watchfan's binary")
}

// validate reports programs that are missing. kube-apiserver alone is measured without watchfan.
func (b *binaries) validate(watchfan bool) error {
	_, err := exec.LookPath(b.Devcluster)
	if err != nil {
		return fmt.Errorf("%w (build it with `make devcluster`)", err)
	}
	if _, err = exec.LookPath(b.Watchfan); err != nil && watchfan {
		return fmt.Errorf("%w (build it with `make build`)", err)
	}
	return nil
}

// addList adds a flag that sets *to to a comma-separated list.
func addList[T any](fs *flag.FlagSet, to *[]T, name, usage string, parse func(string) (T, error)) {
	fs.Func(name, usage+" (default "+join(*to)+")", func(s string) error {
		*to = nil
		for item := range strings.SplitSeq(s, ",") {
			v, err := parse(strings.TrimSpace(item))
			if err != nil {
				return err
			}
			*to = append(*to, v)
		}
		return nil
	})
}

// addPattern adds the flag --only, which sets *to to a regular expression.
func addPattern(fs *flag.FlagSet, to **regexp.Regexp, usage string) {
	fs.Func("only", usage, func(s string) (err error) {
		*to, err = regexp.Compile(s)
		return err
	})
}

func join[T any](values []T) string {
	var s []string
	for _, v := range values {
		s = append(s, fmt.Sprint(v))
	}
	return strings.Join(s, ",")
}

// An output is where a report is published.
type output struct {
	Out string // name of the run in bench/results; "" prints only
}

func (o *output) addFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Out, "out", "", "also write the results to bench/results/<date>-`name`.txt")
}

func (o *output) validate() error {
	if strings.ContainsAny(o.Out, "/\\") {
		return errors.New("--out is a name, not a path")
	}
	return nil
}
