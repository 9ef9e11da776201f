package option

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// Flags returns a flag for each row that has one.
func (t *Table) Flags() *pflag.FlagSet {
	if t.flags == nil {
		t.flags = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	return t.flags
}

// dashed returns a flag as it is written on a command line: --idle-timeout, -v.
func dashed(name string) string { return "--"[:min(2, len(name))] + name }

// PrintHelp writes the flags of a group, one of Groups, with their units and defaults. The group ""
// is all flags. Lines have at most 80 columns.
func (t *Table) PrintHelp(w io.Writer, group string) {
	title := ""
	for _, r := range t.rows {
		if group != "" && group != strings.ToLower(r.group) {
			continue
		}
		if r.group != title {
			title = r.group
			fmt.Fprintf(w, "\n%s:\n", title)
		}
		r.print(w)
	}
}

func (r *row) print(w io.Writer) {
	kind, text := pflag.UnquoteUsage(r.flag)
	if r.fileOnly {
		fmt.Fprintf(w, "  %s in the file of --config\n", fileField(r.flag.Name))
	} else {
		fmt.Fprintf(w, "  %s\n", strings.TrimSpace(dashed(r.flag.Name)+" "+kind))
	}
	if value := r.flag.DefValue; value != "" && value != "false" && !strings.Contains(text, "(default ") {
		text += " (default " + short(value, r.flag) + ")"
	}
	line := "     "
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 80 {
			fmt.Fprintln(w, line)
			line = "     "
		}
		line += " " + word
	}
	fmt.Fprintln(w, line)
}

// short returns a flag's value as people write it: the duration 10m, where pflag has 10m0s.
func short(value string, f *pflag.Flag) string {
	if f.Value.Type() != "duration" {
		return value
	}
	if strings.HasSuffix(value, "m0s") {
		value = strings.TrimSuffix(value, "0s")
	}
	if strings.HasSuffix(value, "h0m") {
		value = strings.TrimSuffix(value, "0m")
	}
	return value
}
