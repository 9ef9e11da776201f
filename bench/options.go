package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
)

// options are the settings of a command.
type options interface {
	AddFlags(*flag.FlagSet) // sets all to their defaults
	Validate() error        // reports what cannot be used on this machine
}

// parseFlags adds the flags of a command, parses its arguments, and validates what they have set.
func parseFlags(fs *flag.FlagSet, o options, args []string) error {
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o.Validate()
}

// conditions returns the machine, and each flag that has a value.
func conditions(fs *flag.FlagSet) report.Conditions {
	c := report.MachineConditions()
	fs.VisitAll(func(f *flag.Flag) {
		if value := f.Value.String(); value != "" {
			c.Add(f.Name, value)
		}
	})
	return c
}

// common are the settings that all commands share.
type common struct {
	Devcluster, Watchfan string         // paths of the programs that are measured
	Out                  string         // name of the run in bench/results; "" prints only
	Only                 *regexp.Regexp // cases to measure, by name
}

func (c *common) out() string { return c.Out }

func (c *common) addPrograms(fs *flag.FlagSet) {
	fs.StringVar(&c.Devcluster, "devcluster", "bin/devcluster", "`path` of the dev cluster's binary")
	fs.StringVar(&c.Watchfan, "watchfan", "bin/watchfan", "`path` of watchfan's binary")
}

// addOut adds the flags of a command that reports.
func (c *common) addOut(fs *flag.FlagSet) {
	c.addPrograms(fs)
	fs.StringVar(&c.Out, "out", "", "also write the results to bench/results/<date>-`name`.txt")
}

// addOnly adds the flag that selects cases.
func (c *common) addOnly(fs *flag.FlagSet) {
	addSetting(fs, &c.Only, "only", regexp.MustCompile(""),
		"measure only what has a name that matches this `regexp`; the benchmark lines have the names", regexp.Compile)
}

// validate reports programs that are missing: kube-apiserver alone is measured without watchfan. It makes room for
// connections.
func (c *common) validate(watchfan bool, connections int) error {
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

// A setting is what a flag parses its value to.
type setting[T any] struct {
	to    *T
	parse func(string) (T, error)
}

func (s setting[T]) Set(text string) (err error) {
	*s.to, err = s.parse(text)
	return err
}

func (s setting[T]) String() string {
	if s.to == nil { // package flag asks for the text of a zero value
		return ""
	}
	return fmt.Sprint(*s.to)
}

func addSetting[T any](fs *flag.FlagSet, to *T, name string, value T, usage string, parse func(string) (T, error)) {
	*to = value
	fs.Var(setting[T]{to, parse}, name, usage)
}

// addNumber adds a flag for a number that is not less than least.
func addNumber(fs *flag.FlagSet, to *int, name string, value, least int, usage string) {
	addSetting(fs, to, name, value, usage, between(least, math.MaxInt))
}

// between parses a number within bounds.
func between(least, most int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err == nil && (n < least || n > most) {
			err = fmt.Errorf("%d is not from %d to %d", n, least, most)
		}
		return n, err
	}
}

// oneOf parses the name of one of all.
func oneOf[T any](all list[T]) func(string) (T, error) {
	return func(s string) (v T, err error) {
		i := slices.IndexFunc(all, func(v T) bool { return fmt.Sprint(v) == s })
		if i < 0 {
			return v, fmt.Errorf("want one of %s", all)
		}
		return all[i], nil
	}
}

// A list is written with commas.
type list[T any] []T

func (l list[T]) String() string {
	var s []string
	for _, v := range l {
		s = append(s, fmt.Sprint(v))
	}
	return strings.Join(s, ",")
}

// addList adds a flag for a list.
func addList[T any](fs *flag.FlagSet, to *list[T], name string, value list[T], usage string,
	parse func(string) (T, error)) {
	addSetting(fs, to, name, value, usage, func(s string) (all list[T], err error) {
		for item := range strings.SplitSeq(s, ",") {
			v, err := parse(strings.TrimSpace(item))
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	})
}
