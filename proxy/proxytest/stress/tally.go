package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tally counts the outcomes of tests by name. The test "(process)" stands for runs that failed without
// the failure of a test, as by a panic or at their time limit.
type tally struct {
	tests map[string]*outcomes
	seeds []string // of the runs that failed
}

const process = "(process)"

// outcomes are those of one test.
type outcomes struct {
	runs, failed int
	seconds      map[mode][]float64
}

func newTally() *tally { return &tally{tests: make(map[string]*outcomes)} }

var (
	outcomeLine = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)$`)
	seedLine    = regexp.MustCompile(`(?m)^-test\.shuffle (\d+)$`)
)

// add reads what a run has printed. It reports whether the run was good.
func (t *tally) add(m mode, printed string, exitedWell bool) (good bool) {
	failures := 0
	for _, line := range outcomeLine.FindAllStringSubmatch(printed, -1) {
		if line[1] == "SKIP" {
			continue
		}
		seconds, _ := strconv.ParseFloat(line[3], 64) // the expression lets digits and points through only
		if !t.note(line[2], m, seconds, line[1] == "PASS") {
			failures++
		}
	}
	if !exitedWell && failures == 0 {
		t.note(process, m, 0, false)
	}
	if exitedWell && failures == 0 {
		return true
	}
	if seed := seedLine.FindStringSubmatch(printed); seed != nil {
		t.seeds = append(t.seeds, seed[1])
	}
	return false
}

func (t *tally) note(test string, m mode, seconds float64, passed bool) bool {
	o := t.tests[test]
	if o == nil {
		o = &outcomes{seconds: make(map[mode][]float64)}
		t.tests[test] = o
	}
	o.runs++
	if !passed {
		o.failed++
	}
	o.seconds[m] = append(o.seconds[m], seconds)
	return passed
}

// table lists the tests, those first that failed most often. With no failure in n runs, the rate is
// below 3/n with 95 % confidence.
func (t *tally) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-50s %5s %6s %8s %12s  %s\n", "test", "runs", "failed", "rate", "95 % below", "median quiet / busy / one processor")
	names := slices.SortedFunc(maps.Keys(t.tests), func(x, y string) int {
		if d := t.tests[y].failed - t.tests[x].failed; d != 0 {
			return d
		}
		return strings.Compare(x, y)
	})
	for _, name := range names {
		o := t.tests[name]
		below := "-"
		if o.failed == 0 {
			below = rate(min(3, o.runs), o.runs)
		}
		var medians []string
		for _, m := range modes {
			medians = append(medians, median(o.seconds[m]))
		}
		fmt.Fprintf(&b, "%-50s %5d %6d %8s %12s  %s\n", name, o.runs, o.failed, rate(o.failed, o.runs), below, strings.Join(medians, " / "))
	}
	if len(t.seeds) > 0 {
		fmt.Fprintf(&b, "orders of the runs that failed: -test.shuffle=%s\n", strings.Join(t.seeds, ", "))
	}
	return b.String()
}

func median(seconds []float64) string {
	if len(seconds) == 0 {
		return "-"
	}
	slices.Sort(seconds)
	return fmt.Sprintf("%.1f s", seconds[len(seconds)/2])
}
