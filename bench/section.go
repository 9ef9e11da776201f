//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A section is the report of a part: its cases and their figures.
type section struct {
	bench   string   // as in BenchmarkBench/…
	title   string   // of its table
	note    string   // explains the table in a few sentences; may be empty
	columns []column // of its table
	costs   int      // so many columns, from the first, have a meaningful ratio to kube-apiserver
	samples []sample
}

// A sample is one case of a section in one round.
type sample struct {
	peer    peer
	axes    []axis // other properties of the case, in the order of its name
	round   int
	err     error  // why there are no figures
	remark  string // beside the figures; may be empty
	metrics []metric
}

// An axis is a property of a case, such as stalled=10.
type axis struct{ name, value string }

// axes returns axes of names and values in turn.
func axes(pairs ...any) (all []axis) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, axis{fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1])})
	}
	return all
}

// axis returns the value of an axis, or "".
func (x *sample) axis(name string) string {
	for _, a := range x.axes {
		if a.name == name {
			return a.value
		}
	}
	return ""
}

func (s *section) add(samples ...sample) { s.samples = append(s.samples, samples...) }

// name returns the name of the sample's benchmark.
func (s *section) name(x *sample) string { return s.nameFor(x, x.peer) }

func (s *section) nameFor(x *sample, p peer) string {
	name := fmt.Sprintf("Benchmark%s/peer=%s/tls=%t", s.bench, p.name, p.tls)
	for _, a := range x.axes {
		name += "/" + a.name + "=" + a.value
	}
	return name
}

// line returns a sample in a line for the log.
func (s *section) line(x *sample) string {
	text := s.name(x) + ":"
	if x.err != nil {
		return fmt.Sprintf("%s FAILED: %v", text, x.err)
	}
	for _, c := range s.columns {
		if v, ok := x.get(c.unit); ok {
			text += fmt.Sprintf("  %s %s", human(v*c.scale), c.title)
		}
	}
	if x.remark != "" {
		text += "  (" + x.remark + ")"
	}
	return text
}

func (x *sample) get(unit string) (float64, bool) {
	if x.err != nil {
		return 0, false
	}
	return find(x.metrics, unit)
}

// cases collects the rounds of each case, in the order of first measurement.
func (s *section) cases() (cases [][]*sample) {
	at := make(map[string]int)
	for i := range s.samples {
		x := &s.samples[i]
		name := s.name(x)
		j, ok := at[name]
		if !ok {
			j = len(cases)
			at[name] = j
			cases = append(cases, nil)
		}
		cases[j] = append(cases[j], x)
	}
	return cases
}

// ratios divides each round of a case by another peer's in the same round.
func (s *section) ratios(rounds []*sample, unit string, other peer) (v []float64) {
	for _, x := range rounds {
		ours, ok := x.get(unit)
		name := s.nameFor(x, other)
		i := slices.IndexFunc(s.samples, func(y sample) bool { return y.round == x.round && s.name(&y) == name })
		if !ok || i < 0 {
			continue
		}
		if theirs, ok := s.samples[i].get(unit); ok && theirs > 0 {
			v = append(v, ours/theirs)
		}
	}
	return v
}

// writeTables writes medians over the rounds, with the smallest and the largest round in brackets,
// and for each proxy its ratio to kube-apiserver and to the floor.
func (s *section) writeTables(w io.Writer) {
	if len(s.samples) == 0 {
		return
	}
	title := s.title
	if s.note != "" {
		title += "\n" + s.note
	}
	cases := s.cases()
	medians := func(rounds []*sample, c column) string {
		var v []float64
		for _, x := range rounds {
			if value, ok := x.get(c.unit); ok {
				v = append(v, value)
			}
		}
		return summarise(v, c.scale)
	}
	none := func([]*sample) string { return "" }
	s.table(w, title, cases, s.columns, remarks, medians)
	cases = slices.DeleteFunc(cases, func(rounds []*sample) bool { return rounds[0].peer == direct })
	if s.costs > 0 {
		s.table(w, s.title+": ratio to kube-apiserver in the same round", cases, s.columns[:s.costs], none,
			func(rounds []*sample, c column) string { return summarise(s.ratios(rounds, c.unit, direct), 1) })
	}
	floor := func(x *sample) peer { return peer{floorBare.name, x.peer.tls} }
	cases = slices.DeleteFunc(cases, func(rounds []*sample) bool {
		return rounds[0].peer == floor(rounds[0]) || len(s.ratios(rounds, unitCPU, floor(rounds[0]))) == 0
	})
	s.table(w, s.title+": ratio to the floor, which only writes the same events at the same rate", cases,
		[]column{{"CPU µs/delivery", unitCPU, 1e-3}}, none,
		func(rounds []*sample, c column) string {
			return summarise(s.ratios(rounds, c.unit, floor(rounds[0])), 1)
		})
	for i := range s.samples {
		if x := &s.samples[i]; x.err != nil {
			fmt.Fprintf(w, "FAILED  %s, round %d: %v\n", s.name(x), x.round, x.err)
		}
	}
}

// table writes a row for each case: its peer and axes, a cell for each column, and a remark.
func (s *section) table(w io.Writer, title string, cases [][]*sample, columns []column,
	about func([]*sample) string, cell func([]*sample, column) string) {
	table(w, title, func(row func(...string)) {
		header := []string{"peer"}
		for _, a := range s.samples[0].axes {
			header = append(header, a.name)
		}
		for _, c := range columns {
			header = append(header, c.title)
		}
		row(header...)
		for _, rounds := range cases {
			cells := []string{rounds[0].peer.String()}
			for _, a := range rounds[0].axes {
				cells = append(cells, a.value)
			}
			for _, c := range columns {
				cells = append(cells, cell(rounds, c))
			}
			row(append(cells, about(rounds))...)
		}
	})
}

// remarks joins the remarks of the rounds, each once, and the number of rounds that failed.
func remarks(rounds []*sample) string {
	var all []string
	failed := 0
	for _, x := range rounds {
		if x.err != nil {
			failed++
		}
		if x.remark != "" && !slices.Contains(all, x.remark) {
			all = append(all, x.remark)
		}
	}
	if failed > 0 {
		all = append(all, fmt.Sprintf("%d of %d rounds FAILED", failed, len(rounds)))
	}
	return strings.Join(all, "; ")
}

// writeBenchmarks writes a line of the Go benchmark format for each sample (proposal 14313), for
// benchstat. A failed case has no figures and becomes a comment.
func (s *section) writeBenchmarks(w io.Writer) {
	for i := range s.samples {
		x := &s.samples[i]
		if x.err != nil {
			fmt.Fprintf(w, "# %s round %d FAILED: %v\n", s.name(x), x.round, x.err)
			continue
		}
		writeBenchmark(w, s.name(x), x.metrics)
	}
}

// values returns the values of one unit in all samples.
func (s *section) values(unit string) (v []float64) {
	for i := range s.samples {
		if value, ok := s.samples[i].get(unit); ok {
			v = append(v, value)
		}
	}
	return v
}

// failed returns the number of samples that lack figures. A case in which kube-apiserver loses
// watchers does not count: that is a result and not a failure.
func (s *section) failed() (n int) {
	for i := range s.samples {
		x := &s.samples[i]
		if lost := (*lostError)(nil); x.err != nil && (x.peer != direct || !errors.As(x.err, &lost)) {
			n++
		}
	}
	return n
}
