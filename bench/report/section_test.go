package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/bench/load"
)

func TestSection(t *testing.T) {
	s := Section{
		Bench: "Example", Title: "An example", Note: "It measures nothing.",
		Columns: []Column{{"CPU µs", "cpu-ns", 1e-3}, {"of", "n", 1}}, Costs: 1,
	}
	x := func(p Peer, size string, round int, cpu float64) *Sample {
		return &Sample{Peer: p, Axes: []Axis{{"size", size}}, Round: round, Metrics: []Metric{{"cpu-ns", cpu}, {"n", 7}}}
	}
	for round, factor := range []float64{1, 3} {
		s.Add(x(Direct, "1", round+1, 8000*factor), x(WatchfanTLS, "1", round+1, 2000), x(WatchfanTLS, "2", round+1, 500))
	}
	failed := x(Direct, "2", 1, 0)
	failed.Err = errors.New("no answer")
	remarked := x(WatchfanBare, "2", 1, 1000)
	remarked.Remark = "half of it"
	s.Add(failed, remarked)

	var tables bytes.Buffer
	s.WriteTables(&tables)
	for _, want := range []string{
		"An example\nIt measures nothing.\n  peer                size  CPU µs",
		`kube-apiserver/tls  1     16.0 (8.00–24.0)  7.00 (7.00–7.00)`,
		`kube-apiserver/tls  2     –                 –                 1 of 1 rounds FAILED`,
		`watchfan/plain      2     1.00              7.00              half of it`,
		`watchfan/tls    1     0.17 (0.083–0.25)`,
		`watchfan/tls    2     –`,
		`FAILED  BenchmarkExample/peer=kube-apiserver/tls=true/size=2, round 1: no answer`,
	} {
		if !strings.Contains(tables.String(), want) {
			t.Errorf("no %q in\n%s", want, &tables)
		}
	}
	if n := strings.Count(tables.String(), "\n  kube-apiserver/tls"); n != 2 {
		t.Errorf("kube-apiserver is in %d rows, want 2: it is not compared with itself", n)
	}

	var lines bytes.Buffer
	s.writeBenchmarks(&lines)
	format := regexp.MustCompile(`^Benchmark[A-Z]\w*(/[a-z]+=[^\s/]+)+-\d+\t1(\t[-+.0-9]+ \S+)+$`)
	n := 0
	for line := range strings.Lines(lines.String()) {
		if strings.HasPrefix(line, "# ") {
			continue
		}
		if n++; !format.MatchString(strings.TrimSuffix(line, "\n")) {
			t.Errorf("not in the format: %q", line)
		}
	}
	if n != 7 || s.failed() != 1 {
		t.Errorf("got %d lines and %d failures, want 7 and 1", n, s.failed())
	}
}

func TestSectionFailed(t *testing.T) {
	lost := fmt.Errorf("storm: %w", &load.LostError{Lost: 3, Of: 5, First: io.EOF})
	ours := Peer{"watchfan", true}
	s := &Section{Samples: []*Sample{
		{Peer: Direct}, {Peer: Direct, Err: lost}, {Peer: Direct, Err: io.EOF}, {Peer: ours, Err: lost}, {Peer: ours},
	}}
	if got := s.failed(); got != 2 {
		t.Errorf("%d failed, want the one that is not about watchers, and ours", got)
	}
}
