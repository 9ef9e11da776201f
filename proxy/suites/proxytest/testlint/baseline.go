package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// key is a rule in the package of a directory, relative to the repository.
type key struct{ dir, rule string }

func (k key) compare(other key) int {
	return cmp.Or(strings.Compare(k.dir, other.dir), strings.Compare(k.rule, other.rule))
}

// findings are lines to print, by package and rule. An entry without lines is one that was looked at.
type findings map[key][]string

// baseline is how many findings are left.
type baseline map[key]int

// parse reads lines of a directory, a rule and a number.
func parse(text string) (baseline, error) {
	b := make(baseline)
	for line := range strings.Lines(text) {
		var k key
		var n int
		if _, err := fmt.Sscanf(line, "%s %s %d\n", &k.dir, &k.rule, &n); err != nil || n < 1 || b[k] != 0 {
			return nil, fmt.Errorf("want a package, a rule and a number that is not 0, once: %q", line)
		}
		b[k] = n
	}
	return b, nil
}

func (b baseline) String() string {
	var s strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(b), key.compare) {
		fmt.Fprintf(&s, "%-32s %-8s %3d\n", k.dir, k.rule, b[k])
	}
	return s.String()
}

// lower makes no number larger.
func (b baseline) lower(found findings) {
	for k, lines := range found {
		b[k] = min(b[k], len(lines))
		if b[k] == 0 {
			delete(b, k)
		}
	}
}

// compare reports whether the findings are those of the baseline, and what is wrong if not.
func (b baseline) compare(found findings, all bool) (report string, same bool) {
	var s strings.Builder
	same = true
	for _, k := range slices.SortedFunc(maps.Keys(found), key.compare) {
		lines := slices.Sorted(slices.Values(found[k]))
		if all || len(lines) > b[k] {
			for _, line := range lines {
				fmt.Fprintln(&s, line)
			}
		}
		switch {
		case len(lines) > b[k]:
			fmt.Fprintf(&s, "%s: %d findings of %s, and the baseline has %d\n", k.dir, len(lines), k.rule, b[k])
			same = false
		case len(lines) < b[k]:
			fmt.Fprintf(&s, "%s: %d findings of %s, and the baseline has %d: make lint UPDATE=1\n", k.dir, len(lines), k.rule, b[k])
			same = false
		}
	}
	return s.String(), same
}
