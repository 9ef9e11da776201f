package proxy

import (
	"io"

	"github.com/watchfan/watchfan/proxy/base/option"
)

// Flags are options as flags, and the flag that names their file.
type Flags struct {
	Options
	Table *option.Table // of the options, bound to them

	config string // file name
}

// NewFlags returns flags that set Options. Until they are parsed, Options has the defaults.
func NewFlags() *Flags {
	f := &Flags{Options: NewOptions()}
	f.Table = f.Options.table()
	f.Table.Group("Program")
	f.Table.Flag(&f.config, "config", "`FILE` with the configuration, as watchfan config prints it; flags win over it; "+
		"read once, at the start (default none)")
	return f
}

// Complete reads the configuration file that --config names, after the flags have been parsed. The
// file overrides the defaults, and no flag that has been given. An error names the file, the line and
// the field. Complete does not validate the options.
func (f *Flags) Complete() error {
	if f.config == "" {
		return nil
	}
	err := f.Table.ReadFile("config", f.config)
	f.places = f.Table.Places
	return err
}

// WriteConfig writes o as a configuration file with all fields. Reading the file gives the same
// options.
func (o *Options) WriteConfig(w io.Writer) error { return o.table().WriteConfig(w) }
