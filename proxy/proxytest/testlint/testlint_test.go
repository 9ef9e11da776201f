package main

import (
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

// The rules find the lines that say so, and no others.
func TestRules(t *testing.T) {
	all := *rules[0]
	all.Name, all.Run = "all", func(pass *analysis.Pass) (any, error) {
		for _, rule := range rules {
			of := *pass
			of.Analyzer = rule
			if _, err := rule.Run(&of); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	packages := []string{"proxytest/shared"}
	for _, rule := range rules {
		packages = append(packages, rule.Name)
	}
	analysistest.Run(t, analysistest.TestData(), &all, packages...)
}

// A package has as many findings as the baseline says, neither more nor fewer.
func TestBaseline(t *testing.T) {
	text := "bench                            timer      2\nproxy                            port       1\n"
	b, err := parse(text)
	if err != nil || b.String() != text {
		t.Fatalf("got %q, %v", b, err)
	}
	bench, proxy := key{"bench", "timer"}, key{"proxy", "port"}
	f := func(found findings, want string) {
		t.Helper()
		report, same := b.compare(found, false)
		if same != (want == "") || !strings.Contains(report, want) {
			t.Errorf("got %t, %q; want %q", same, report, want)
		}
	}
	f(findings{bench: {"x:1", "x:2"}, proxy: {"y"}}, "")
	f(findings{bench: {"x:1", "x:2"}}, "") // of some modules
	f(findings{bench: {"x:1", "x:2"}, {"proxy", "timer"}: {"z:1: found"}}, "z:1: found")
	f(findings{bench: {"x:1", "x:2", "x:3"}}, "x:3\nbench: 3 findings of timer, and the baseline has 2")
	f(findings{proxy: nil}, "proxy: 0 findings of port, and the baseline has 1: make lint UPDATE=1")

	b.lower(findings{bench: {"x:1", "x:2", "x:3"}, proxy: nil, {"proxy", "timer"}: {"z"}})
	if len(b) != 1 || b[bench] != 2 {
		t.Errorf("got %v", b)
	}
	for _, text := range []string{"proxy port\n", "proxy port 0\n", "proxy port -1\n", "proxy port 1\nproxy port 1\n", "<<<<<<<\n"} {
		if b, err := parse(text); err == nil {
			t.Errorf("%q is parsed as %v", text, b)
		}
	}
}
