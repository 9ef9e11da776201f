package deploytest

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write deploy/METRICS.md")

const metricsFile = "../METRICS.md"

const metricsHead = `# Metrics

These are the metrics of watchfan at ` + "`/metrics`" + ` on the admin port.
Go's and the process's own metrics are there too (` + "`go_*`, `process_*`" + `).
` + "`make deploytest UPDATE=1`" + ` makes this file from a running watchfan.
` + "`make deploytest`" + ` fails if it is out of date.

A *lane* is one resource in one representation (` + "`encoding`" + `) that watchfan follows upstream.
Its series exist as long as the lane.

| metric | type | labels | unit | meaning |
|---|---|---|---|---|
`

// document compares METRICS.md with the metrics of a watchfan after the whole test. Each metric has
// a help text, a type and a series, and Prometheus' own linter reports nothing.
func (l *load) document(t *testing.T) {
	var ours bytes.Buffer
	helps, types, series := make(map[string]string), make(map[string]string), make(map[string][]string)
	label := regexp.MustCompile(`([a-z_]+)="`)
	for line := range strings.Lines(scrape(t, l.admin)) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 4)
		name, labels, _ := strings.Cut(fields[0], "{")
		switch {
		case fields[0] == "#" && len(fields) == 4 && fields[1] == "HELP":
			helps[fields[2]] = fields[3]
		case fields[0] == "#" && len(fields) == 4 && fields[1] == "TYPE":
			types[fields[2]] = fields[3]
		case strings.HasPrefix(name, "watchfan_"):
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, ok := strings.CutSuffix(name, suffix); ok && types[base] == "histogram" {
					name = base
				}
			}
			if helps[name] == "" {
				t.Errorf("%s is not described where it is defined", name)
			}
			series[name] = append(series[name], "")
			for _, m := range label.FindAllStringSubmatch(labels, -1) {
				series[name] = append(series[name], m[1])
			}
		default:
			continue
		}
		ours.WriteString(line)
	}

	table := metricsHead
	for _, name := range slices.Sorted(maps.Keys(helps)) {
		if len(series[name]) == 0 {
			t.Errorf("%s has no series", name)
		}
		var labels []string
		for _, l := range slices.Compact(slices.Sorted(slices.Values(series[name]))) {
			if l != "" && l != "le" {
				labels = append(labels, "`"+l+"`")
			}
		}
		unit := "1"
		for _, u := range []string{"seconds", "bytes"} {
			if strings.Contains(name, "_"+u) {
				unit = u
			}
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", name, types[name], strings.Join(labels, ", "),
			unit, helps[name])
	}
	if *update {
		if err := os.WriteFile(metricsFile, []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, metricsFile); got != table {
		t.Errorf("%s is out of date: make deploytest UPDATE=1; it should be\n%s", metricsFile, table)
	}

	lint := exec.CommandContext(t.Context(), binary(t, "promtool"), "check", "metrics")
	lint.Stdin = &ours
	if out, err := lint.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
