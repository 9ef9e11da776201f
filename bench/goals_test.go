//go:build linux

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestGoals: a goal compares two cases of watchfan over TLS within each round, and its median
// decides.
func TestGoals(t *testing.T) {
	one, two := []axis{{"of", "one"}}, []axis{{"of", "two"}}
	s := &section{bench: "Example", title: "An example", columns: []column{{"n", "n", 1}}, goals: []goal{
		{"half, and more is allowed", "n", one, two, 0.6}, {"half, and less is allowed", "n", one, two, 0.4},
		{"half", "n", one, two, 0}, {"itself, just enough", "n", two, nil, 7.5}, {"itself, too much", "n", two, nil, 7.4},
		{"no such case", "n", []axis{{"of", "three"}}, nil, 1}, {"no such figure", "m", one, two, 1},
		{"compared with no case", "n", one, []axis{{"of", "three"}}, 1},
	}}
	for round, factor := range []float64{1, 2, 100} {
		for _, p := range []peer{direct, watchfanTLS} {
			x := sample{peer: p, axes: one, round: round + 1, metrics: []metric{{"n", 2.5 * factor}}}
			y := sample{peer: p, axes: two, round: round + 1, metrics: []metric{{"n", 5 * factor}}}
			if p == direct {
				x.metrics[0].value = 7
			}
			if round == 2 { // a round that fails has no part in any figure
				y.err = io.ErrUnexpectedEOF
			}
			s.add(x, y)
		}
	}
	var tables bytes.Buffer
	s.writeTables(&tables)
	_, goals, _ := strings.Cut(tables.String(), "An example: targets; a ratio is between two cases in the same round\n")
	goals, _, _ = strings.Cut(goals, "\n\n")
	var got []string
	for line := range strings.Lines(goals) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"figure measured target",
		"half, and more is allowed 0.50 (0.50–0.50) ≤ 0.60 met",
		"half, and less is allowed 0.50 (0.50–0.50) ≤ 0.40 MISSED",
		"half 0.50 (0.50–0.50) –",
		"itself, just enough 7.50 (5.00–10.0) ≤ 7.50 met",
		"itself, too much 7.50 (5.00–10.0) ≤ 7.40 MISSED",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestGoalsExist: the goals of each section are about figures that its cases may have.
func TestGoalsExist(t *testing.T) {
	for _, s := range newProgram(defaults(), nil).inOrder() {
		for _, g := range s.goals {
			found := false
			for _, c := range s.columns {
				found = found || c.unit == g.unit
			}
			if !found || len(g.of) == 0 {
				t.Errorf("%s: %q has the unit %s and the axes %v", s.bench, g.title, g.unit, g.of)
			}
		}
	}
}
