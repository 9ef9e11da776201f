package cachesuite

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCacheSuite runs Kubernetes' suite at kube-apiserver and at watchfan. A test must pass at
// kube-apiserver unless exceptions names it, and have the same outcome at watchfan unless
// differences names it. In a crowd, which reads pass through depends on timing, and a difference may
// be missing.
func TestCacheSuite(t *testing.T) {
	servers := startServers(t)
	found, names := make([]verdicts, len(servers)), verdicts{}
	for i, s := range servers {
		t.Logf("the suite runs at %s", s.Name)
		found[i] = judge(t, s)
		if s.Admin != "" {
			checkCached(t, s)
		}
		for name, v := range found[i] {
			names[name] = v
		}
	}
	passed := 0
	for _, name := range names.leaves() {
		want := found[0].at(name)
		switch reason := exceptions[name]; {
		case want.outcome == "pass" && reason != "":
			t.Errorf("%s passes at %s and is an exception: %s", name, servers[0].Name, reason)
		case want.outcome == "pass":
			passed++
		case reason == "":
			t.Errorf("%s: %s at %s\n%s", name, want.outcome, servers[0].Name, want.output)
		}
		for i, v := range found[1:] {
			got, reason := v.at(name), differences[name]
			switch {
			case got.outcome == want.outcome && reason != "" && !servers[i+1].Crowd:
				t.Errorf("%s: %s at %s and at %s, and is a difference: %s", name, got.outcome, servers[0].Name,
					servers[i+1].Name, reason)
			case got.outcome != want.outcome && reason == "":
				t.Errorf("%s: %s at %s, but %s at %s\n%s", name, want.outcome, servers[0].Name, got.outcome,
					servers[i+1].Name, got.output)
			}
		}
	}
	for _, table := range []map[string]string{exceptions, differences} {
		for name := range table {
			if names[name] == nil {
				t.Errorf("there is no test %s", name)
			}
		}
	}
	t.Logf("%d of %d tests pass at %s; %d of them differ at watchfan", passed, len(names.leaves()), servers[0].Name,
		len(differences))
}

// checkCached checks that watchfan's caches have answered the suite, and not kube-apiserver: watches
// almost always, and lists for the most part in a crowd.
func checkCached(t *testing.T, s server) {
	t.Helper()
	cached := func(verb string) float64 {
		return s.metric(t, "watchfan_cached_requests_total", `group="`+s.Group+`"`, `verb="`+verb+`"`)
	}
	watches, lists := cached("watch"), cached("list")
	passedWatches := s.metric(t, "watchfan_passthrough_watches_total")
	passedLists := s.metric(t, "watchfan_passthrough_requests_total", `verb="list"`)
	t.Logf("answered from caches: %v watches, %v lists, %v gets; watchfan has passed through %v watches and %v lists",
		watches, lists, cached("get"), passedWatches, passedLists)
	if watches < 10*passedWatches || s.Crowd && lists < passedLists {
		t.Errorf("%s: the suite has tested what is passed through", s.Name)
	}
}

// TestSuiteIsComplete compares suiteTests with the suite's source.
func TestSuiteIsComplete(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "k8s.io/apiserver/pkg/storage/testing").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*_tests.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files of the suite: %v, %v", files, err)
	}
	var want, got []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range regexp.MustCompile(`(?m)^func (Run\w+)\(`).FindAllSubmatch(source, -1) {
			want = append(want, string(f[1]))
		}
	}
	for _, test := range suiteTests {
		got = append(got, test.function)
		if (test.run == nil) == (test.skip == "") {
			t.Errorf("%s must either run or be skipped with a reason", test.function)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
