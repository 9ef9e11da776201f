package exposition

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
)

// described holds all metrics of the program by name. It does not change after initialization.
var described = maps.Clone(fanout.Descriptions)

// Describe adds a metric and returns its name, which has no labels. kind is Prometheus' type of the
// metric. help is one statement or more. Describe is only called while package variables are
// initialized, so it needs no lock.
func Describe(kind, name, help string) string {
	described[name] = fanout.Description{Type: kind, Help: help}
	return name
}

// Write writes the metrics of set, of the process and of Go in Prometheus' text format. Described
// metrics come first, sorted by name, each with its help text and its type above its series, even
// where it has no series yet. Others follow, as the library writes them.
func Write(w io.Writer, set *metrics.Set) {
	var text bytes.Buffer
	set.WritePrometheus(&text)
	metrics.WriteProcessMetrics(&text)
	metrics.WriteFDMetrics(&text)
	series := make(map[string][]string)
	var others []string
	for line := range strings.Lines(text.String()) {
		if name := metricOf(line); name != "" {
			series[name] = append(series[name], line)
		} else {
			others = append(others, line)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(described)) {
		m := described[name]
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s", name, m.Help, name, m.Type, strings.Join(series[name], ""))
	}
	io.WriteString(w, strings.Join(others, ""))
}

// metricOf returns the described metric whose sample a line is; "" if there is none.
func metricOf(line string) string {
	name := line[:strings.IndexAny(line+" ", "{ ")]
	if _, ok := described[name]; ok {
		return name
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if name, ok := strings.CutSuffix(name, suffix); ok && described[name].Type == "histogram" {
			return name
		}
	}
	return ""
}
