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
	f := func(n, want string) {
		t.Helper()
		got := ""
		if runs, err := parseRuns(n); err == nil {
			got = fmt.Sprint(runs)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", n, got, want)
		}
	}
	f("5", "[5 5 5]")
	f("15,15,5", "[15 15 5]")
	f("0", "[0 0 0]")
	f("15,15", "")
	f("-1", "")
	f("", "")
}
