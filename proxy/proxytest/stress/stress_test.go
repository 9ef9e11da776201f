package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tests that fail, tests that pass and a process that fails are told apart, in the table of the runs and
// in that of their record.
func TestStress(t *testing.T) {
	var out, record strings.Builder
	s := &stress{keep: t.TempDir(), record: &record, out: &out, tally: make(tally),
		flags: []string{"-test.v=test2json", "-test.shuffle=5"}}
	var err error
	if s.binaries, err = buildAll(s.keep, nil, []string{"./testdata/fails", "./testdata/exits"}); err != nil {
		t.Fatal(err)
	}
	if err := s.run([...]int{2, 1, 1}); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(s.table()), " ")
	for _, want := range []string{
		" fails.TestFails 4 4 100.0 % - 0.0 s / 0.0 s / 0.0 s ",
		" exits (process) 4 4 100.0 % - ",
		" fails.TestPasses 4 0 0.0 % 75.0 % 0.0 s / 0.0 s / 0.0 s ",
		" exits.TestPasses 4 0 0.0 % ",
		" fails.TestFails failed, busy: -test.shuffle=5 ",
	} {
		if !strings.Contains(got+" ", want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if n := s.failures(); n != 8 || len(s.tally) != 4 {
		t.Errorf("%d failures of %d tests", n, len(s.tally))
	}
	kept, err := filepath.Glob(filepath.Join(s.keep, "*fails.test-busy-5.log"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %q, %v", kept, err)
	}
	if content, err := os.ReadFile(kept[0]); err != nil || !strings.Contains(string(content), "its words") {
		t.Errorf("kept %q, %v", content, err)
	}
	again := make(tally)
	if err := again.read(strings.NewReader(record.String())); err != nil || again.table() != s.table() {
		t.Errorf("the record has %s, %v", again.table(), err)
	}
}

func TestParseRuns(t *testing.T) {
	for n, want := range map[string]string{"5": "[5 5 5]", "15,15,5": "[15 15 5]", "0": "[0 0 0]"} {
		if runs, err := parseRuns(n); err != nil || fmt.Sprint(runs) != want {
			t.Errorf("%s: got %v, %v, want %s", n, runs, err, want)
		}
	}
	for _, n := range []string{"15,15", "-1", ""} {
		if runs, err := parseRuns(n); err == nil {
			t.Errorf("%s: got %v", n, runs)
		}
	}
}
