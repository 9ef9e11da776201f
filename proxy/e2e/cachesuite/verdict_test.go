package cachesuite

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
)

// verdict is what a test of the suite found at a server.
type verdict struct {
	outcome string // PASS, FAIL or SKIP
	output  string // what the test has printed
}

// verdicts are by the test's name, without the name of TestOneServer.
type verdicts map[string]*verdict

// Lines of go test -v=test2json. A frame says which test, if any, prints the lines after it.
var (
	frameLine   = regexp.MustCompile(`^\x16=== (?:RUN|CONT|NAME|PAUSE) *(?:TestOneServer/?(.*))?$`)
	outcomeLine = regexp.MustCompile(`^\x16--- (PASS|FAIL|SKIP): TestOneServer/?(.*) \([0-9.]+s\)$`)
)

// readVerdicts parses what a run of TestOneServer prints.
func readVerdicts(r io.Reader) (verdicts, error) {
	all, current := verdicts{}, ""
	at := func(name string) *verdict {
		if all[name] == nil {
			all[name] = new(verdict)
		}
		return all[name]
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := frameLine.FindStringSubmatch(line); m != nil {
			current = m[1]
		} else if m := outcomeLine.FindStringSubmatch(line); m != nil {
			current = m[2]
			at(current).outcome = m[1]
		} else {
			at(current).output += line + "\n"
		}
	}
	return all, lines.Err()
}

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
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOneServer$", "-test.v=test2json",
		"-test.timeout=10m")
	cmd.Env = append(os.Environ(), underTest+"="+string(content))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	failed := cmd.Run()
	all, err := readVerdicts(&output)
	if err != nil {
		t.Fatal(err)
	}
	if all.at("").outcome == "no verdict" { // it did not come to its end
		t.Errorf("%s: %v\n%s", s.Name, failed, all.at("").output)
	}
	return all
}
