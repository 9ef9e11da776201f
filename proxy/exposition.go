package proxy

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// writeMetrics writes all metrics in Prometheus' text format. Ours come first, in the order of their names, each with its question and its
// type above all its series, even where there is none yet; then the process' and Go's, as the library writes them.
func writeMetrics(w io.Writer) {
	var text bytes.Buffer
	metrics.WritePrometheus(&text, true)
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
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s", name, m.Question, name, m.Type, strings.Join(series[name], ""))
	}
	io.WriteString(w, strings.Join(others, ""))
}

// metricOf is the name of the described metric that a line has a sample of; "" for none.
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
