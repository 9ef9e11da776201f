package option

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// FlagSet returns a flag for each row. Present values are the defaults that it shows.
func (t *Table) FlagSet(program string) *flag.FlagSet {
	fs := flag.NewFlagSet(program, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	for _, r := range t.rows {
		fs.Var(r.value, r.name, r.text)
	}
	return fs
}

// Parse sets the variables as a command line says, which wins over the configuration file. The error is flag.ErrHelp
// for --help.
func (t *Table) Parse(program string, args []string) error {
	fs := t.FlagSet(program)
	if err := fs.Parse(args); err != nil {
		return t.suggest(err)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("flags only, not %q", fs.Arg(0))
	}
	fs.Visit(func(f *flag.Flag) { delete(t.Places, f.Name) })
	return nil
}

// suggest adds the flag that was meant, probably, to an error about an unknown one.
func (t *Table) suggest(err error) error {
	unknown, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return err
	}
	unknown = strings.TrimPrefix(unknown, "-")
	best, distance := "", len(unknown)/3+1
	for _, r := range t.rows {
		if d := editDistance(unknown, r.name); d < distance {
			best, distance = r.name, d
		}
	}
	if best == "" {
		return fmt.Errorf("there is no flag --%s", unknown)
	}
	return fmt.Errorf("there is no flag --%s: did you mean --%s?", unknown, best)
}

// editDistance is how many letters have to be added, dropped or changed to make b of a (Levenshtein).
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

// PrintHelp writes the flags of one of Groups with their units and defaults, or all of them for "". Lines have at most
// 80 columns.
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
	fmt.Fprintf(w, "  %s\n", strings.TrimSpace("--"[:min(2, len(r.name))]+r.name+" "+kind))
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
