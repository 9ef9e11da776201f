package cachesuite

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// verdict is what a test of the suite found at a server.
type verdict struct {
	outcome string // pass, fail or skip
	output  string // what the test has printed
}

// verdicts are by the test's name, without the name of TestOneServer.
type verdicts map[string]*verdict

// leaves returns the names of the tests that contain no other.
func (v verdicts) leaves() []string {
	inner := map[string]bool{"": true}
	for name := range v {
		for i, c := range name {
			if c == '/' {
				inner[name[:i]] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(v))
	return slices.DeleteFunc(names, func(name string) bool { return inner[name] })
}

// at returns the outcome of a test that may not have run.
func (v verdicts) at(name string) verdict {
	var found verdict
	if v[name] != nil {
		found = *v[name]
	}
	found.outcome = cmp.Or(found.outcome, "no verdict")
	return found
}

// judge runs TestOneServer at s.
func judge(t *testing.T, s server) verdicts {
	t.Helper()
	content, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "tool", "test2json", os.Args[0], "-test.run=^TestOneServer$", "-test.v=test2json",
		"-test.timeout=10m")
	cmd.Env = append(os.Environ(), underTest+"="+string(content))
	cmd.Stderr = os.Stderr
	output, failed := cmd.Output()
	all := verdicts{}
	for d := json.NewDecoder(bytes.NewReader(output)); ; {
		var e struct{ Action, Test, Output string }
		if err := d.Decode(&e); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%s: %v: %.1000s", s.Name, err, output)
		}
		name := strings.TrimPrefix(strings.TrimPrefix(e.Test, "TestOneServer"), "/")
		if all[name] == nil {
			all[name] = new(verdict)
		}
		if all[name].output += e.Output; e.Test != "" && slices.Contains([]string{"pass", "fail", "skip"}, e.Action) {
			all[name].outcome = e.Action
		}
	}
	if all.at("").outcome == "no verdict" { // it did not come to its end
		t.Errorf("%s: %v\n%s", s.Name, failed, all.at("").output)
	}
	return all
}
