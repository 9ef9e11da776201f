//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
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
	err := executable(b.Devcluster, "make devcluster")
	if watchfan {
		err = errors.Join(err, executable(b.Watchfan, "make build"))
	}
	return err
}

func executable(path, hint string) error {
	info, err := os.Stat(path)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("%s: not a program", path)
	}
	if err != nil {
		return fmt.Errorf("%w (build it with `%s`)", err, hint)
	}
	return nil
}

// list returns a flag.Func that sets *to to a comma-separated list.
func list[T any](to *[]T, parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		*to = nil
		for item := range strings.SplitSeq(s, ",") {
			v, err := parse(strings.TrimSpace(item))
			if err != nil {
				return err
			}
			*to = append(*to, v)
		}
		return nil
	}
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
