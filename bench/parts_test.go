//go:build linux

package main

import (
	"bytes"
	"testing"
)

// TestSections: the ratios of a section are among its columns, and without samples it writes nothing.
func TestSections(t *testing.T) {
	for _, s := range newProgram(defaults()).sections {
		if s.Costs > len(s.Columns) {
			t.Errorf("%s: ratios of %d columns, of %d", s.Bench, s.Costs, len(s.Columns))
		}
		var none bytes.Buffer
		if s.WriteTables(&none); none.Len() > 0 {
			t.Errorf("%s: has something to say before it measured: %s", s.Bench, &none)
		}
	}
}
