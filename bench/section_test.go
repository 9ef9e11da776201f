//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

func TestSection(t *testing.T) {
	s := section{
		bench: "Example", title: "An example", note: "It measures nothing.",
		columns: []column{{"CPU µs", "cpu-ns", 1e-3}, {"of", "n", 1}}, costs: 1,
	}
	x := func(p peer, size string, round int, cpu float64) sample {
		return sample{peer: p, axes: []axis{{"size", size}}, round: round, metrics: []metric{{"cpu-ns", cpu}, {"n", 7}}}
	}
	for round, factor := range []float64{1, 3} {
		s.add(x(direct, "1", round+1, 8000*factor), x(watchfanTLS, "1", round+1, 2000), x(watchfanTLS, "2", round+1, 500))
	}
	failed := x(direct, "2", 1, 0)
	failed.err = errors.New("no answer")
	remarked := x(watchfanBare, "2", 1, 1000)
	remarked.remark = "half of it"
	s.add(failed, remarked)

	var tables bytes.Buffer
	s.writeTables(&tables)
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

// TestSections: the ratios of a section are among its columns, and without samples it writes nothing.
func TestSections(t *testing.T) {
	for _, s := range newProgram(defaults()).sections {
		if s.costs > len(s.columns) {
			t.Errorf("%s: ratios of %d columns, of %d", s.bench, s.costs, len(s.columns))
		}
		var none bytes.Buffer
		if s.writeTables(&none); none.Len() > 0 {
			t.Errorf("%s: has something to say before it measured: %s", s.bench, &none)
		}
	}
}

func TestSectionFailed(t *testing.T) {
	lost := fmt.Errorf("storm: %w", &lostError{3, 5, io.EOF})
	ours := peer{"watchfan", true}
	s := &section{samples: []sample{
		{peer: direct}, {peer: direct, err: lost}, {peer: direct, err: io.EOF}, {peer: ours, err: lost}, {peer: ours},
	}}
	if got := s.failed(); got != 2 {
		t.Errorf("%d failed, want the one that is not about watchers, and ours", got)
	}
}
