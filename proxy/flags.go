package proxy

import (
	"errors"
	"io"

	"github.com/watchfan/watchfan/proxy/option"
)

// ErrVersion is what ParseFlags returns for --version.
var ErrVersion = errors.New("version requested")

// program is the flags that are no options.
type program struct {
	config  string // a file's name
	version bool
}

func (p *program) add(t *option.Table) {
	t.Group("Program")
	t.Flag(&p.config, "config", "`FILE` with the configuration, as watchfan config prints it; flags win over it; "+
		"read once, at the start (default none)")
	t.Switch(&p.version, "version", "print the version and exit")
}

// ParseFlags returns the options of a command line: the defaults, over them the configuration file
// that --config names, over that the flags of args. It does not validate them. The error is
// flag.ErrHelp for --help, ErrVersion for --version; else it says what is wrong, in the file with
// file, line and field.
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

// WriteConfig writes o as a configuration file with all fields, which reads back as the same
// options.
func (o *Options) WriteConfig(w io.Writer) error { return o.table().WriteConfig(w) }

// FlagGroups returns the titles of the flags' groups, in lower case.
func FlagGroups() []string { return help().Groups() }

// PrintFlags writes the flags of one of FlagGroups with their units and defaults, or of all of them
// for "". A group fits a screen of 80 columns and 28 lines.
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
