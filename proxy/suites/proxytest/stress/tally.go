package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// outcome is that of one test in one run. Its fields are those of go tool test2json, the mode, and the
// order of the tests. Without a test, a package has failed though none of its tests did, as by a panic
// or at its time limit.
type outcome struct {
	Package, Test, Action string
	Elapsed               float64 // seconds
	Mode                  mode
	Shuffle               string
}

func (o outcome) name() string {
	if o.Test == "" {
		return path.Base(o.Package) + " (process)"
	}
	return path.Base(o.Package) + "." + o.Test
}

// read reads the output of go tool test2json: the outcomes of tests, and what they printed.
func read(events io.Reader, m mode) (outcomes []outcome, printed string, err error) {
	var text strings.Builder
	var shuffle string
	failed := false
	for lines := json.NewDecoder(events); ; {
		var event struct {
			outcome
			Output string
		}
		if err := lines.Decode(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, "", fmt.Errorf("read the output of go tool test2json: %w", err)
		}
		o := event.outcome
		text.WriteString(event.Output)
		if seed, ok := strings.CutPrefix(event.Output, "-test.shuffle "); ok {
			shuffle = strings.TrimSpace(seed)
		}
		if o.Action != "pass" && o.Action != "fail" || strings.Contains(o.Test, "/") { // subtests count as their test
			continue
		}
		if o.Test == "" && (o.Action == "pass" || failed) {
			continue
		}
		failed = failed || o.Action == "fail"
		o.Mode, o.Shuffle = m, shuffle
		outcomes = append(outcomes, o)
	}
	return outcomes, text.String(), nil
}

// tally has the outcomes of tests by name.
type tally map[string]*counts

type counts struct {
	runs, failed int
	seconds      map[mode][]float64
	orders       []string // of the runs that failed
}

func (t tally) note(o outcome) {
	c := t[o.name()]
	if c == nil {
		c = &counts{seconds: make(map[mode][]float64)}
		t[o.name()] = c
	}
	c.runs++
	c.seconds[o.Mode] = append(c.seconds[o.Mode], o.Elapsed)
	if o.Action == "fail" {
		c.failed++
		c.orders = append(c.orders, fmt.Sprintf("%s: -test.shuffle=%s", o.Mode, o.Shuffle))
	}
}

func (t tally) failures() (n int) {
	for _, c := range t {
		n += c.failed
	}
	return n
}

// table lists the tests, those first that failed most often. With no failure in n runs, the rate is
// below 3/n with 95 % confidence.
func (t tally) table() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%-60s %5s %6s %8s %12s  %s\n", "test", "runs", "failed", "rate", "95 % below", "median quiet / busy / one processor")
	names := slices.SortedFunc(maps.Keys(t), func(x, y string) int {
		if d := t[y].failed - t[x].failed; d != 0 {
			return d
		}
		return strings.Compare(x, y)
	})
	for _, name := range names {
		c := t[name]
		below := "-"
		if c.failed == 0 {
			below = percent(min(3, c.runs), c.runs)
		}
		var medians []string
		for _, m := range modes {
			medians = append(medians, median(c.seconds[m]))
		}
		fmt.Fprintf(&s, "%-60s %5d %6d %8s %12s  %s\n", name, c.runs, c.failed, percent(c.failed, c.runs), below, strings.Join(medians, " / "))
	}
	for _, name := range names {
		for _, order := range t[name].orders {
			fmt.Fprintf(&s, "%s failed, %s\n", name, order)
		}
	}
	return s.String()
}

func median(seconds []float64) string {
	if len(seconds) == 0 {
		return "-"
	}
	seconds = slices.Sorted(slices.Values(seconds))
	return fmt.Sprintf("%.1f s", seconds[len(seconds)/2])
}

func percent(part, of int) string {
	return strconv.FormatFloat(100*float64(part)/float64(of), 'f', 1, 64) + " %"
}
