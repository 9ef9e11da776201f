// Command plot draws the figures in bench/results as SVGs, each in light and in dark colours.
//
//	plot RESULTS PICTURES
//
// RESULTS is a folder of reports that `bench run --out` and `bench list --out` have written.
// PICTURES is the folder in which it writes the SVGs. It removes those that no report has figures
// for. The same reports give the same bytes.
//
//	results.go   reports, read with the Go project's own parser of the benchmark format
//	figures.go   what each picture shows, and where its numbers come from
//	timeline.go  the picture of a storm on a time axis
//	chart.go     lines with points and spreads
//	bars.go      horizontal bars with values
//	sheet.go     the sheet around a picture: title, legend, caption, colours, SVG
//
// It is a module of its own, so watchfan does not depend on gonum.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "Usage: plot RESULTS PICTURES")
		os.Exit(2)
	}
	if err := replace(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

// replace replaces the SVGs in a folder by those of a folder of reports.
func replace(results, pictures string) error {
	drawn, err := drawAll(results)
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(pictures, "*.svg"))
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	for name, svg := range drawn {
		if err := os.WriteFile(filepath.Join(pictures, name), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// drawAll returns the SVGs of a folder of reports, by file name.
func drawAll(results string) (map[string][]byte, error) {
	runs, err := readRuns(results)
	if err != nil {
		return nil, err
	}
	drawn := make(map[string][]byte)
	for _, f := range figures {
		p, ok := f(runs)
		if !ok {
			continue
		}
		for _, t := range themes {
			svg, err := t.draw(p)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			drawn[p.name+"-"+t.name+".svg"] = svg
		}
	}
	if len(drawn) == 0 {
		return nil, fmt.Errorf("no report in %s has figures to draw", results)
	}
	return drawn, nil
}
