//go:build linux

package report

import (
	"fmt"
	"strconv"
	"strings"
)

// SumSeries adds up the series of a metric that have all of the labels. page is in the Prometheus
// text format:
//
//	name{label="value",…} 3
//	name 3
func SumSeries(page, name string, labels ...string) (sum float64, err error) {
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		set, value, complete := strings.Cut(rest, " ")
		if rest[0] == '{' { // values of labels may contain spaces
			set, value, complete = strings.Cut(rest, "} ")
		}
		if !hasAll(set, labels) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if !complete || err != nil {
			return 0, fmt.Errorf("metric %.200q: not a number", line)
		}
		sum += n
	}
	return sum, nil
}

func hasAll(set string, labels []string) bool {
	for _, label := range labels {
		if !strings.Contains(set, label) {
			return false
		}
	}
	return true
}
