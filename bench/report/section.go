package report

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/watchfan/watchfan/bench/load"
)

// A Section is the report of a part: its cases and their figures.
type Section struct {
	Bench   string   // as in BenchmarkBench/…
	Title   string   // of its table
	Note    string   // explains the table in a few sentences; may be empty
	Columns []Column // of its table
	Costs   int      // so many columns, from the first, have a meaningful ratio to kube-apiserver
	Samples []*Sample
}

// A Sample is one case of a section in one round.
type Sample struct {
	Peer    Peer
	Axes    []Axis // other properties of the case, in the order of its name
	Round   int
	Err     error  // why there are no figures
	Remark  string // beside the figures; may be empty
	Metrics []Metric
}

// An Axis is a property of a case, such as stalled=10.
type Axis struct{ name, value string }

// Axes returns axes of names and values in turn.
func Axes(pairs ...any) (all []Axis) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, Axis{fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1])})
	}
	return all
}

// Axis returns the value of an axis, or "".
func (x *Sample) Axis(name string) string {
	for _, a := range x.Axes {
		if a.name == name {
			return a.value
		}
	}
	return ""
}

func (s *Section) Add(samples ...*Sample) { s.Samples = append(s.Samples, samples...) }

// Name returns the name of the sample's benchmark.
func (s *Section) Name(x *Sample) string { return s.nameFor(x, x.Peer) }

func (s *Section) nameFor(x *Sample, p Peer) string {
	name := fmt.Sprintf("Benchmark%s/peer=%s/tls=%t", s.Bench, p.Name, p.TLS)
	for _, a := range x.Axes {
		name += "/" + a.name + "=" + a.value
	}
	return name
}

// Line returns a sample in a line for the log.
func (s *Section) Line(x *Sample) string {
	text := s.Name(x) + ":"
	if x.Err != nil {
		return fmt.Sprintf("%s FAILED: %v", text, x.Err)
	}
	for _, c := range s.Columns {
		if v, ok := x.Get(c.unit); ok {
			text += fmt.Sprintf("  %s %s", Human(v*c.scale), c.title)
		}
	}
	if x.Remark != "" {
		text += "  (" + x.Remark + ")"
	}
	return text
}

func (x *Sample) Get(unit string) (float64, bool) {
	if x.Err != nil {
		return 0, false
	}
	return Find(x.Metrics, unit)
}

// cases collects the rounds of each case, in the order of first measurement.
func (s *Section) cases() (cases [][]*Sample) {
	for _, x := range s.Samples {
		i := slices.IndexFunc(cases, func(rounds []*Sample) bool { return s.Name(rounds[0]) == s.Name(x) })
		if i < 0 {
			i = len(cases)
			cases = append(cases, nil)
		}
		cases[i] = append(cases[i], x)
	}
	return cases
}

// ratios divides each round of a case by another peer's in the same round.
func (s *Section) ratios(rounds []*Sample, unit string, other Peer) (v []float64) {
	for _, x := range rounds {
		ours, ok := x.Get(unit)
		name := s.nameFor(x, other)
		i := slices.IndexFunc(s.Samples, func(y *Sample) bool { return y.Round == x.Round && s.Name(y) == name })
		if !ok || i < 0 {
			continue
		}
		if theirs, ok := s.Samples[i].Get(unit); ok && theirs > 0 {
			v = append(v, ours/theirs)
		}
	}
	return v
}

// AddRatio adds a metric to each sample of a peer: its metric of, divided by another peer's in the same round.
func (s *Section) AddRatio(unit, of string, peer, other Peer) {
	for _, x := range s.Samples {
		if x.Peer == peer {
			for _, ratio := range s.ratios([]*Sample{x}, of, other) {
				x.Metrics = append(x.Metrics, M(unit, ratio))
			}
		}
	}
}

// WriteTables writes medians over the rounds, with the smallest and the largest round in brackets,
// and for each proxy its ratio to kube-apiserver and to the floor.
func (s *Section) WriteTables(w io.Writer) {
	if len(s.Samples) == 0 {
		return
	}
	title := s.Title
	if s.Note != "" {
		title += "\n" + s.Note
	}
	cases := s.cases()
	medians := func(rounds []*Sample, c Column) string { return summarise(values(rounds, c.unit), c.scale) }
	none := func([]*Sample) string { return "" }
	s.table(w, title, cases, s.Columns, remarks, medians)
	cases = slices.DeleteFunc(cases, func(rounds []*Sample) bool { return rounds[0].Peer == Direct })
	if s.Costs > 0 {
		s.table(w, s.Title+": ratio to kube-apiserver in the same round", cases, s.Columns[:s.Costs], none,
			func(rounds []*Sample, c Column) string { return summarise(s.ratios(rounds, c.unit, Direct), 1) })
	}
	floor := func(x *Sample) Peer { return Peer{FloorBare.Name, x.Peer.TLS} }
	cases = slices.DeleteFunc(cases, func(rounds []*Sample) bool {
		return rounds[0].Peer == floor(rounds[0]) || len(s.ratios(rounds, UnitCPU, floor(rounds[0]))) == 0
	})
	s.table(w, s.Title+": ratio to the floor, which only writes the same events at the same rate", cases,
		[]Column{{"CPU µs/delivery", UnitCPU, 1e-3}}, none,
		func(rounds []*Sample, c Column) string {
			return summarise(s.ratios(rounds, c.unit, floor(rounds[0])), 1)
		})
	for _, x := range s.Samples {
		if x.Err != nil {
			fmt.Fprintf(w, "FAILED  %s, round %d: %v\n", s.Name(x), x.Round, x.Err)
		}
	}
}

// table writes an aligned table with a row for each case: its peer and axes, a cell for each column, and a remark.
func (s *Section) table(w io.Writer, title string, cases [][]*Sample, columns []Column,
	about func([]*Sample) string, cell func([]*Sample, Column) string) {
	if len(cases) == 0 {
		return
	}
	header := []string{"peer"}
	for _, a := range s.Samples[0].Axes {
		header = append(header, a.name)
	}
	for _, c := range columns {
		header = append(header, c.title)
	}
	fmt.Fprintln(w, title)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "  "+strings.Join(header, "\t"))
	for _, rounds := range cases {
		cells := []string{rounds[0].Peer.String()}
		for _, a := range rounds[0].Axes {
			cells = append(cells, a.value)
		}
		for _, c := range columns {
			cells = append(cells, cell(rounds, c))
		}
		fmt.Fprintln(tw, "  "+strings.Join(append(cells, about(rounds)), "\t"))
	}
	tw.Flush()
	fmt.Fprintln(w)
}

// remarks joins the remarks of the rounds, each once, and the number of rounds that failed.
func remarks(rounds []*Sample) string {
	var all []string
	failed := 0
	for _, x := range rounds {
		if x.Err != nil {
			failed++
		}
		if x.Remark != "" && !slices.Contains(all, x.Remark) {
			all = append(all, x.Remark)
		}
	}
	if failed > 0 {
		all = append(all, fmt.Sprintf("%d of %d rounds FAILED", failed, len(rounds)))
	}
	return strings.Join(all, "; ")
}

// writeBenchmarks writes a line of the Go benchmark format for each sample (proposal 14313), for
// benchstat. A failed case has no figures and becomes a comment.
func (s *Section) writeBenchmarks(w io.Writer) {
	for _, x := range s.Samples {
		if x.Err != nil {
			fmt.Fprintf(w, "# %s round %d FAILED: %v\n", s.Name(x), x.Round, x.Err)
			continue
		}
		writeBenchmark(w, s.Name(x), x.Metrics)
	}
}

// values returns the values of one unit in samples.
func values(samples []*Sample, unit string) (v []float64) {
	for _, x := range samples {
		if value, ok := x.Get(unit); ok {
			v = append(v, value)
		}
	}
	return v
}

// failed returns the number of samples that lack figures. A case in which kube-apiserver loses
// watchers does not count: that is a result and not a failure.
func (s *Section) failed() (n int) {
	for _, x := range s.Samples {
		if lost := (*load.LostError)(nil); x.Err != nil && (x.Peer != Direct || !errors.As(x.Err, &lost)) {
			n++
		}
	}
	return n
}
