package main

import (
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
