// Package option is a table of a program's settings. One row has a setting's name, default, bounds,
// unit, group and help text. Flags, the configuration file, --help and validation are all made from
// the rows, so a setting is written in one place.
//
//	t := option.Table{APIVersion: "watchfan.io/v1alpha1", Kind: "WatchfanConfiguration"}
//	t.Group("Caching")
//	t.Duration(&o.IdleTimeout, "idle-timeout", 10*time.Minute,
//		"`DURATION` for which …", option.NotNegative)
//
// A row is bound to a variable. [Table.SetDefaults] sets the variables, [Table.Parse] and
// [Table.ReadConfig] change them, and [Table.Check] compares them with their bounds. The
// configuration file has a field for each flag: clientBufferBytes for client-buffer-bytes.
//
// The package knows no setting of watchfan. A Table is used by one goroutine at a time.
package option
