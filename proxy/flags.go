package proxy

import (
	"errors"
	"flag"
	"io"

	"github.com/watchfan/watchfan/proxy/option"
)

// ErrVersion is the error that ParseFlags returns for --version.
var ErrVersion = errors.New("version requested")

// program holds the flags that are no options.
type program struct {
	config  string // file name
	version bool
}

func (p *program) add(t *option.Table) {
	t.Group("Program")
	t.Flag(&p.config, "config", "`FILE` with the configuration, as watchfan config prints it; flags win over it; "+
		"read once, at the start (default none)")
	t.Switch(&p.version, "version", "print the version and exit")
}

// ParseFlags returns the options of a command line. The configuration file that --config names
// overrides the defaults, and the flags of args override both. ParseFlags does not validate the
// options. The error is flag.ErrHelp for --help and ErrVersion for --version. An error in the
// configuration file names the file, the line and the field.
func ParseFlags(args []string) (Options, error) {
	o, p := NewOptions(), program{}
	t := o.table()
	p.add(t)
	parse := func() error { return t.Parse("watchfan", args) }
	switch err := parse(); {
	case err != nil:
		return o, err
	case p.version:
		return o, ErrVersion
	case p.config == "":
		return o, nil
	}
	file := p.config
	t.SetDefaults()
	if err := t.ReadFile("config", file); err != nil {
		return o, err
	}
	o.places = t.Places
	err := parse()
	return o, err
}

// WriteConfig writes o as a configuration file with all fields. Reading the file gives the same
// options.
func (o *Options) WriteConfig(w io.Writer) error { return o.table().WriteConfig(w) }

// FlagGroups returns the titles of the flags' groups, in lower case.
func FlagGroups() []string { return help().Groups() }

// Flags returns all flags with their texts and defaults, for completion.
func Flags() *flag.FlagSet { return help().FlagSet("watchfan") }

// PrintFlags writes the flags of one of FlagGroups with their units and defaults. "" selects all
// groups. A group fits a screen of 80 columns and 28 lines.
func PrintFlags(w io.Writer, group string) { help().PrintHelp(w, group) }

// help returns all flags with their defaults.
func help() *option.Table {
	var o Options
	var p program
	t := o.table()
	p.add(t)
	t.SetDefaults()
	return t
}
