package option

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Table holds the settings in the order of the help and of the configuration file. Its fields are
// set before it is used.
type Table struct {
	// APIVersion and Kind begin a configuration file.
	APIVersion, Kind string
	// Partial is true for a table with some of a configuration file's settings. Nothing is said about
	// other fields of the file, nor about those that begin it.
	Partial bool
	// Titles are the titles of groups, in the order of the groups. Other groups follow in the order
	// in which they are begun.
	Titles []string
	// Places say where a configuration file sets each setting, by flag: "config.yaml:12:
	// historyBytes". Errors name the places. Nil: there is no file.
	Places map[string]string

	flags *pflag.FlagSet
	rows  []row
	group string // of the rows that are added next
}

// row is one setting, bound to its variable.
type row struct {
	group    string
	flag     *pflag.Flag
	variable reflect.Value
	standard reflect.Value // its default
	wrong    func() []fact // returns the errors in the variable's value
	flagOnly bool          // the configuration file has no field for it
	fileOnly bool          // it is not one of the flags
}

// fact is an error in a value: "is too small: give at least 1".
type fact struct {
	value any
	wrong string
}

// Check returns what is wrong with a value and what to give instead; "" for a right value. The text
// follows "--flag=value ".
type Check[T any] func(T) string

// Group begins a group, or continues it. The rows that are added next are put at its end.
func (t *Table) Group(title string) {
	t.group = title
	if !slices.Contains(t.Titles, title) {
		t.Titles = append(t.Titles, title)
	}
}

// insert puts a row at the end of its group.
func (t *Table) insert(r row) *row {
	r.group = t.group
	i := len(t.rows)
	for i > 0 && slices.Index(t.Titles, t.rows[i-1].group) > slices.Index(t.Titles, r.group) {
		i--
	}
	t.rows = slices.Insert(t.rows, i, r)
	return &t.rows[i]
}

// Groups returns the titles, in lower case and in the order of their first rows.
func (t *Table) Groups() (titles []string) {
	for _, r := range t.rows {
		if title := strings.ToLower(r.group); !slices.Contains(titles, title) {
			titles = append(titles, title)
		}
	}
	return titles
}

// String adds a setting that is a string. The text names the value's unit between backquotes, as it
// does for all settings.
func (t *Table) String(p *string, name, value, text string, checks ...Check[string]) {
	add(t, p, t.Flags().StringVar, name, value, text, checks)
}

// Bool adds a setting that is true or false.
func (t *Table) Bool(p *bool, name string, value bool, text string) {
	add(t, p, t.Flags().BoolVar, name, value, text, nil)
}

// Int adds a setting that is a whole number.
func (t *Table) Int(p *int, name string, value int, text string, checks ...Check[int]) {
	add(t, p, t.Flags().IntVar, name, value, text, checks)
}

// Size adds a setting in bytes, spelled as a Kubernetes quantity: 64Mi.
func (t *Table) Size(p *int64, name string, value int64, text string, checks ...Check[int64]) {
	add(t, p, own(t, p, (*sizeValue)(p)), name, value, text, checks)
}

// Duration adds a setting that is a duration, spelled as in Go: 30s.
func (t *Table) Duration(p *time.Duration, name string, value time.Duration, text string, checks ...Check[time.Duration]) {
	add(t, p, t.Flags().DurationVar, name, value, text, checks)
}

// Strings adds a setting that is a comma-separated list, empty by default. The checks are applied
// to each element.
func (t *Table) Strings(p *[]string, name, text string, checks ...Check[string]) {
	add(t, p, own(t, p, (*listValue)(p)), name, nil, text, nil).wrong = func() (facts []fact) {
		for _, s := range *p {
			facts = append(facts, judge(s, checks)...)
		}
		return facts
	}
}

// Level adds two settings for the level of the log: --log-level has its name, and -v its number in
// Kubernetes' components. The configuration file has the first only.
func (t *Table) Level(p *slog.Level, text, numberText string) {
	add(t, p, own(t, p, (*levelValue)(p)), "log-level", slog.LevelInfo, text, nil)
	number := add(t, p, own(t, p, (*verbosityValue)(p)), "v", slog.LevelInfo, numberText, nil)
	number.flagOnly = true
}

// Flag adds a flag without a field in the configuration file, such as --config.
func (t *Table) Flag(p *string, name, text string) {
	add(t, p, t.Flags().StringVar, name, "", text, nil).flagOnly = true
}

// add adds a row with the flag that bind defines. The variable keeps its value.
func add[T any](t *Table, p *T, bind func(p *T, name string, value T, text string), name string, value T, text string,
	checks []Check[T]) *row {
	present := *p
	bind(p, name, value, text)
	*p = present
	return t.insert(row{flag: t.flags.Lookup(name), variable: reflect.ValueOf(p).Elem(), standard: reflect.ValueOf(value),
		wrong: func() []fact { return judge(*p, checks) }})
}

// own returns a function for add that defines a flag with a value of a type of this package.
func own[T any](t *Table, p *T, v pflag.Value) func(_ *T, name string, value T, text string) {
	return func(_ *T, name string, value T, text string) {
		*p = value
		shorthand := ""
		if len(name) == 1 {
			shorthand = name
		}
		t.Flags().VarP(v, name, shorthand, text)
	}
}

// shown returns a value as errors show it.
func shown(v any) any {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return v
}

// judge returns the error of the first check that fails.
func judge[T any](value T, checks []Check[T]) []fact {
	for _, check := range checks {
		if wrong := check(value); wrong != "" {
			return []fact{{shown(value), wrong}}
		}
	}
	return nil
}

// SetDefaults sets each variable to its default.
func (t *Table) SetDefaults() {
	for _, r := range t.rows {
		r.variable.Set(r.standard)
	}
}

// Check returns all errors in single settings. Each error names the place of the setting and says
// what to do.
func (t *Table) Check() error {
	var errs []error
	for _, r := range t.rows {
		for _, f := range r.wrong() {
			errs = append(errs, fmt.Errorf("%s %s", t.Given(r.flag.Name, f.value), f.wrong))
		}
	}
	return errors.Join(errs...)
}

// Named returns the place of a setting: "--history-bytes", or "config.yaml:12: historyBytes".
func (t *Table) Named(name string) string { return cmp.Or(t.Places[name], dashed(name)) }

// Given returns the place with the value: "--history-bytes=5", or "config.yaml:12: historyBytes:
// 5".
func (t *Table) Given(name string, value any) string {
	if t.Places[name] != "" {
		return fmt.Sprintf("%s: %v", t.Named(name), value)
	}
	return fmt.Sprintf("%s=%v", t.Named(name), value)
}
