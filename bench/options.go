package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
)

// options are the settings of a command.
type options interface {
	AddFlags(*flag.FlagSet)
	Validate() error // reports what cannot be used on this machine
}

// parseOptions sets the options of a command from its arguments and validates them.
func parseOptions(command string, o options, args []string, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench "+command, flag.ContinueOnError)
	fs.SetOutput(stderr)
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o.Validate()
}

// common are the settings that all commands share.
type common struct {
	Devcluster, Watchfan string         // paths of the programs that are measured
	Out                  string         // name of the run in bench/results; "" prints only
	Only                 *regexp.Regexp // cases to measure, by name
}

func commonDefaults() common {
	return common{Devcluster: "bin/devcluster", Watchfan: "bin/watchfan", Only: regexp.MustCompile("")}
}

func (c *common) out() string { return c.Out }

func (c *common) addFlags(fs *flag.FlagSet, all knobs) {
	fs.StringVar(&c.Devcluster, "devcluster", c.Devcluster, "`path` of the dev cluster's binary")
	fs.StringVar(&c.Watchfan, "watchfan", c.Watchfan, "`path` of watchfan's binary")
	for _, k := range all {
		fs.IntVar(k.to, k.name, *k.to, k.usage)
	}
}

// addOut adds the flag for a report's name.
func (c *common) addOut(fs *flag.FlagSet) {
	fs.StringVar(&c.Out, "out", "", "also write the results to bench/results/<date>-`name`.txt")
}

// addOnly adds the flag that selects cases.
func (c *common) addOnly(fs *flag.FlagSet) {
	fs.Func("only", "measure only what has a name that matches this `regexp`; the benchmark lines have the names",
		func(s string) (err error) {
			c.Only, err = regexp.Compile(s)
			return err
		})
}

// validate reports a knob that is out of its bounds, and programs that are missing: kube-apiserver alone is
// measured without watchfan. It makes room for connections.
func (c *common) validate(all knobs, watchfan bool, connections int) error {
	for _, k := range all {
		if *k.to < k.least || *k.to > k.most {
			return fmt.Errorf("--%s must be from %d to %d", k.name, k.least, k.most)
		}
	}
	if strings.ContainsAny(c.Out, "/\\") {
		return errors.New("--out is a name, not a path")
	}
	if _, err := exec.LookPath(c.Devcluster); err != nil {
		return fmt.Errorf("%w (build it with `make devcluster`)", err)
	}
	if _, err := exec.LookPath(c.Watchfan); err != nil && watchfan {
		return fmt.Errorf("%w (build it with `make build`)", err)
	}
	return load.RaiseFileLimit(connections)
}

// A knob is a number that a flag sets, and its bounds.
type knob struct {
	name        string
	to          *int
	least, most int
	usage       string
}

type knobs []knob

// conditions returns the machine and the knobs of a run.
func (all knobs) conditions() report.Conditions {
	c := report.MachineConditions()
	for _, k := range all {
		c.Add(k.name, fmt.Sprint(*k.to))
	}
	return c
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

func join[T any](values []T) string {
	var s []string
	for _, v := range values {
		s = append(s, fmt.Sprint(v))
	}
	return strings.Join(s, ",")
}
