package exposition_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/exposition"
)

var pairs = exposition.Describe("counter", "watchfan_pairs_total", "Pairs.")

// TestWrite: each series stands under the help text and the type of its metric, which are written
// once. Series of metrics that are not described stand at the end.
func TestWrite(t *testing.T) {
	set := metrics.NewSet()
	set.NewCounter("watchfan_stranger_total")
	set.NewCounter(pairs + `{resource="one"}`)
	set.NewCounter("watchfan_other_total")
	set.NewCounter(pairs + `{resource="two"}`)
	fanout.NewMetrics(set) // histograms too
	var text bytes.Buffer
	exposition.Write(&text, set)

	head := make(map[string]int)
	under, strangers := "", 0
	for line := range strings.Lines(text.String()) {
		fields := strings.Fields(line)
		switch {
		case fields[0] == "#" && fields[1] == "HELP":
			under = fields[2]
			if head[under]++; head[under] > 1 || !strings.HasPrefix(under, "watchfan_") ||
				!strings.HasSuffix(line, ".\n") {
				t.Errorf("%s", line)
			}
		case fields[0] == "#":
			if fields[1] != "TYPE" || fields[2] != under {
				t.Errorf("%s under %s", line, under)
			}
		case strings.HasPrefix(line, "watchfan_stranger_total") || strings.HasPrefix(line, "watchfan_other_total"):
			strangers++
		case strings.HasPrefix(line, "watchfan_") && !strings.HasPrefix(line, under):
			t.Errorf("%s under %s", line, under)
		}
	}
	if strangers != 2 || head[pairs] != 1 || head["watchfan_delivery_duration_seconds"] != 1 {
		t.Errorf("%d strangers in\n%s", strangers, text.String())
	}
	const both = "\n# HELP watchfan_pairs_total Pairs.\n# TYPE watchfan_pairs_total counter\n" +
		"watchfan_pairs_total{resource=\"one\"} 0\nwatchfan_pairs_total{resource=\"two\"} 0\n"
	if !strings.Contains(text.String(), both) || !strings.Contains(text.String(), "\nprocess_open_fds ") ||
		!strings.Contains(text.String(), "\ngo_goroutines ") {
		t.Errorf("got\n%s", text.String())
	}
}
