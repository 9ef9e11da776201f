package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tests are counted by name, and a run that ends without the failure of a test counts as one of the
// process.
func TestTally(t *testing.T) {
	x := newTally()
	good := "-test.shuffle 7\n=== RUN   TestA\n--- PASS: TestA (0.50s)\n    --- PASS: TestA/sub (0.10s)\n--- SKIP: TestC (0.00s)\nPASS\n"
	if !x.add(quiet, good, true) || !x.add(busy, good, true) {
		t.Error("a good run is bad")
	}
	if x.add(one, "-test.shuffle 8\n--- PASS: TestA (1.50s)\n--- FAIL: TestB (2.00s)\nFAIL\n", false) {
		t.Error("a failure is good")
	}
	if x.add(one, "-test.shuffle 9\npanic: test timed out after 1s\n", false) {
		t.Error("a panic is good")
	}
	got := strings.Join(strings.Fields(x.table()), " ")
	for _, want := range []string{
		"(process) 1 1 100.0 % - - / - / 0.0 s TestB 1 1 100.0 %",
		"TestA 3 0 0.0 % 100.0 % 0.5 s / 0.5 s / 1.5 s",
		"-test.shuffle=8, 9",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if strings.Contains(got, "TestC") {
		t.Error("a test that was skipped is counted")
	}
}

// A program that fails in each run is noticed, and what it prints is kept.
func TestStress(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	script := "#!/bin/sh\necho '-test.shuffle 5'\necho '--- FAIL: TestX (0.10s)'\nexit 1\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	keep := filepath.Join(dir, "kept")
	failed, err := stress(&out, 1, dir, keep, []string{program})
	if err != nil || !failed || !strings.Contains(out.String(), "TestX") {
		t.Errorf("failed %t, %v, %s", failed, err, &out)
	}
	if content, err := os.ReadFile(filepath.Join(keep, "busy-0.log")); err != nil || !strings.Contains(string(content), "TestX") {
		t.Errorf("kept %q, %v", content, err)
	}
	if _, err := stress(&out, 1, dir, keep, []string{filepath.Join(dir, "missing")}); err == nil {
		t.Error("a program that is not there is no error")
	}
}
