package option

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// FlagSet returns a flag for each row. The flags' defaults are the present values.
func (t *Table) FlagSet(program string) *flag.FlagSet { return t.flagSet(program, new(error)) }

// flagSet is FlagSet. It also sets failed when a flag has a wrong value.
func (t *Table) flagSet(program string, failed *error) *flag.FlagSet {
	fs := flag.NewFlagSet(program, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	for _, r := range t.rows {
		if r.fileOnly {
			continue
		}
		fs.Var(&flagValue{r.value, r.name, failed}, r.name, r.text)
	}
	return fs
}

// flagValue is the value of a row's flag. Its errors name the flag with two dashes, where those of
// package flag have one.
type flagValue struct {
	flag.Getter
	name   string
	failed *error
}

func (v *flagValue) Set(s string) error {
	err := v.Getter.Set(s)
	if err != nil {
		*v.failed = fmt.Errorf("%s=%s: %w", dashed(v.name), s, err)
	}
	return err
}

func (v *flagValue) IsBoolFlag() bool {
	_, ok := v.Getter.(*boolValue)
	return ok
}

// dashed returns a flag as it is written on a command line: --idle-timeout, -v.
func dashed(name string) string { return "--"[:min(2, len(name))] + name }

// Parse sets the variables from a command line, which wins over the configuration file. The error
// is flag.ErrHelp for --help.
func (t *Table) Parse(program string, args []string) error {
	t.forget()
	var failed error
	fs := t.flagSet(program, &failed)
	if err := fs.Parse(args); failed != nil {
		return failed
	} else if err != nil {
		return Explain(fs, err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("flags only, not %q", fs.Arg(0))
	}
	fs.Visit(func(f *flag.Flag) { delete(t.Places, f.Name) })
	return nil
}

// forget makes the next flag or field of each row replace its variable's value, whatever set it.
func (t *Table) forget() {
	for _, r := range t.rows {
		if v, ok := r.value.(interface{ forget() }); ok {
			v.forget()
		}
	}
}

// Explain rewrites an error of fs.Parse. The new error names the flag with two dashes. For an unknown
// flag it also names the flag that was probably meant. Errors of other kinds, such as flag.ErrHelp,
// are returned as they are.
func Explain(fs *flag.FlagSet, err error) error {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	if m := wrongValue.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s=%s: %s", dashed(m[2]), unquoted(m[1]), m[3])
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag needs an argument: -"); ok {
		return fmt.Errorf("%s needs a value", dashed(name))
	}
	unknown, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return err
	}
	if near := nearest(fs, unknown); near != "" {
		return fmt.Errorf("there is no flag %s: did you mean %s?", dashed(unknown), dashed(near))
	}
	return fmt.Errorf("there is no flag %s", dashed(unknown))
}

// wrongValue is the error of package flag about a value: value, flag, what is wrong.
var wrongValue = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-([^:]*): (.*)$`)

// unquoted returns the value that package flag has quoted.
func unquoted(quoted string) string {
	value, err := strconv.Unquote(quoted)
	if err != nil {
		return quoted
	}
	return value
}

// nearest returns the flag that the unknown flag probably means: the one with the fewest different
// letters, or else the shortest one that begins with it. It returns "" if no flag is near.
func nearest(fs *flag.FlagSet, unknown string) (best string) {
	if len(unknown) > mostMisspelt {
		return ""
	}
	distance, begun := min(len(unknown)/2, max(len(unknown)/3, 2))+1, ""
	fs.VisitAll(func(f *flag.Flag) {
		if d := editDistance(unknown, f.Name); d < distance {
			best, distance = f.Name, d
		}
		if strings.HasPrefix(f.Name, unknown) && len(unknown) >= 3 && (begun == "" || len(f.Name) < len(begun)) {
			begun = f.Name
		}
	})
	return cmp.Or(best, begun)
}

// mostMisspelt is the length of the longest unknown flag for which nearest looks, in bytes.
const mostMisspelt = 100

// editDistance returns the number of letters to add, drop or change to turn a into b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

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
	kind, text := flag.UnquoteUsage(&flag.Flag{Name: r.name, Usage: r.text, Value: r.value})
	if r.fileOnly {
		fmt.Fprintf(w, "  %s in the file of --config\n", fileField(r.name))
	} else {
		fmt.Fprintf(w, "  %s\n", strings.TrimSpace(dashed(r.name)+" "+kind))
	}
	if value := r.value.String(); value != "" && value != "false" && !strings.Contains(text, "(default ") {
		text += " (default " + value + ")"
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
