//go:build linux

package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func TestHuman(t *testing.T) {
	f := func(v float64, want string) {
		t.Helper()
		if got := human(v); got != want {
			t.Errorf("human(%v): got %q want %q", v, got, want)
		}
	}
	f(0, "0.00")
	f(0.0123, "0.012")
	f(1.234, "1.23")
	f(12.34, "12.3")
	f(123.4, "123")
	f(1234, "1,234")
	f(1234567, "1,234,567")
	f(-1234, "-1,234")
}

// sameAsGolden compares a report with a file of testdata. The number of cores is not compared.
func sameAsGolden(t *testing.T, name, report string) {
	t.Helper()
	report = regexp.MustCompile(`(?m)-\d+\t1\t`).ReplaceAllString(report, "-2\t1\t")
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, []byte(report), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if report != string(want) {
		t.Errorf("got\n%s\nwant\n%s", report, want)
	}
}

// benchmarkLines counts the lines of a report in the Go benchmark format
// (golang.org/design/14313-benchmark-format): a name with the number of cores, an iteration count,
// and pairs of value and unit, with no unit twice.
func benchmarkLines(t *testing.T, report string) (n int) {
	t.Helper()
	format := regexp.MustCompile(`^Benchmark[A-Z]\w*(/[a-z]+=[^\s/]+)+-\d+\t1(\t[-+.0-9]+ \S+)+$`)
	for line := range strings.Lines(report) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		n++
		if !format.MatchString(line) {
			t.Errorf("not in the format: %q", line)
			continue
		}
		seen := make(map[string]bool)
		for _, pair := range strings.Split(line, "\t")[2:] {
			_, unit, _ := strings.Cut(pair, " ")
			if seen[unit] {
				t.Errorf("unit %s twice: %q", unit, line)
			}
			seen[unit] = true
		}
	}
	return n
}
