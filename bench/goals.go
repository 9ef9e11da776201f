//go:build linux

package main

import (
	"io"
	"slices"
)

// A goal is a figure of watchfan over TLS: of one case, or of one case divided by another in the
// same round. It may have a bound.
type goal struct {
	title string
	unit  string
	of    []axis  // the case
	to    []axis  // the case that it is divided by; nil is none
	most  float64 // that it should be; 0 is no bound
}

// reached returns the goal's figure in each round that has it.
func (s *section) reached(g *goal) (v []float64) {
	name := func(axes []axis) string { return s.name(&sample{peer: watchfanTLS, axes: axes}) }
	var rounds []*sample
	for i := range s.samples {
		x := &s.samples[i]
		if s.name(x) != name(g.of) {
			continue
		}
		rounds = append(rounds, x)
		if value, ok := x.get(g.unit); ok && g.to == nil {
			v = append(v, value)
		}
	}
	if g.to == nil {
		return v
	}
	return s.quotients(rounds, g.unit, func(*sample) string { return name(g.to) })
}

// writeGoals writes a row for each goal that has a figure. The median decides whether it is met.
func (s *section) writeGoals(w io.Writer) {
	table(w, s.title+": targets; a ratio is between two cases in the same round", func(row func(...string)) {
		row("figure", "measured", "target", "")
		for i := range s.goals {
			g := &s.goals[i]
			v := slices.Sorted(slices.Values(s.reached(g)))
			if len(v) == 0 {
				continue
			}
			target, verdict := "–", ""
			if g.most > 0 {
				target, verdict = "≤ "+human(g.most), "met"
				if median(v) > g.most {
					verdict = "MISSED"
				}
			}
			row(g.title, summarise(v, 1), target, verdict)
		}
	})
}
