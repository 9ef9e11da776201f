package proxytest

import (
	"strconv"
	"strings"
)

// SumMetric returns the sum of the samples of a metric that have all the labels, given as
// name="value".
func SumMetric(text, name string, labels ...string) float64 {
	sum := 0.0
sample:
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue sample
			}
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		v, err := strconv.ParseFloat(fields[0], 64)
		if err == nil {
			sum += v
		}
	}
	return sum
}
