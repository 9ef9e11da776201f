package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
)

func main() {
	path := flag.String("baseline", "proxy/suites/proxytest/testlint/baseline", "`file` with the findings that are left")
	update := flag.Bool("update", false, "lower the baseline's numbers to what is found")
	all := flag.Bool("all", false, "print every finding, those of the baseline too")
	flag.Parse()
	good, err := run(*path, flag.Args(), *update, *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !good {
		os.Exit(1)
	}
}

// run reports whether packages have the findings of the baseline, and no others.
func run(path string, patterns []string, update, all bool) (good bool, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	left, err := parse(string(content))
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	found := make(findings)
	for _, pattern := range patterns {
		dir, all := strings.CutSuffix(pattern, "/...")
		for k := range left {
			if k.dir == dir || all && moduleOf(k.dir) == dir {
				found[k] = nil
			}
		}
		if err := lint(dir, strings.TrimPrefix(pattern, dir), found); err != nil {
			return false, fmt.Errorf("%s: %w", pattern, err)
		}
	}
	if update {
		left.lower(found)
		if err := os.WriteFile(path, []byte(left.String()), 0o644); err != nil {
			return false, err
		}
	}
	report, good := left.compare(found, all)
	fmt.Print(report)
	return good, nil
}

// moduleOf returns the directory of the module that dir is in. Both are relative to the repository.
func moduleOf(dir string) string {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	return dir
}

// lint adds the findings in the package in dir, or with suffix /... in all packages of the module there.
func lint(dir, suffix string, found findings) error {
	repository, err := os.Getwd()
	if err != nil {
		return err
	}
	pkgs, err := load(dir, "."+suffix)
	if err != nil {
		return err
	}
	graph, err := checker.Analyze(rules, pkgs, nil)
	if err != nil {
		return err
	}
	for act := range graph.All() {
		if act.Err != nil {
			return act.Err
		}
		for _, d := range act.Diagnostics {
			at := act.Package.Fset.Position(d.Pos)
			if at.Filename, err = filepath.Rel(repository, at.Filename); err != nil {
				return err
			}
			k := key{filepath.Dir(at.Filename), act.Analyzer.Name}
			found[k] = append(found[k], fmt.Sprintf("%s:%d: %s (%s)", at.Filename, at.Line, d.Message, k.rule))
		}
	}
	return nil
}

// load loads packages, each with its tests.
func load(dir, pattern string) ([]*packages.Package, error) {
	loaded, err := packages.Load(&packages.Config{Dir: dir, Tests: true, Mode: packages.LoadSyntax | packages.NeedForTest}, pattern)
	if err != nil {
		return nil, err
	}
	tested := make(map[string]bool) // packages that are loaded once more, with their tests
	var errs []error
	for _, p := range loaded {
		tested[p.PkgPath] = tested[p.PkgPath] || p.ForTest == p.PkgPath
		for _, err := range p.Errors {
			errs = append(errs, err)
		}
	}
	var pkgs []*packages.Package
	for _, p := range loaded {
		withTests := p.ForTest == p.PkgPath || p.ForTest+"_test" == p.PkgPath
		generated := p.PkgPath == p.ForTest+".test" || p.Name == "main" && p.ForTest == "" && p.ID != p.PkgPath
		if !generated && (withTests || p.ForTest == "" && !tested[p.PkgPath]) {
			pkgs = append(pkgs, p)
		}
	}
	return pkgs, errors.Join(errs...)
}
