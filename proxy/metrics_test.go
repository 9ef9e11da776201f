package proxy_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	_ "github.com/watchfan/watchfan/proxy" // describes its metrics
	"github.com/watchfan/watchfan/proxy/exposition"
)

// TestMetricHelp: the help text of each metric is one statement or more.
func TestMetricHelp(t *testing.T) {
	var text bytes.Buffer
	exposition.Write(&text, metrics.NewSet())
	described := make(map[string]bool)
	for line := range strings.Lines(text.String()) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if fields[0] != "#" || fields[1] != "HELP" {
			continue
		}
		described[fields[2]] = true
		if help := fields[3]; !strings.HasSuffix(help, ".") || strings.Contains(help, "?") {
			t.Errorf("%s: help text is %q", fields[2], help)
		}
	}
	for _, name := range []string{"watchfan_draining", "watchfan_access_reviews_total", "watchfan_cache_objects",
		"watchfan_watchers"} {
		if !described[name] {
			t.Errorf("%s is not described", name)
		}
	}
}
