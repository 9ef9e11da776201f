package proxy_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
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

// TestTwoServers: what one server counts is not seen at another, a lane's series end with it, and the
// process has no metrics of either.
func TestTwoServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := func() *bubble.Proxy {
			return bubble.Start(t, proxytest.NewBubbleServer(t), func(o *proxy.Options) { o.Lane.IdleTimeout = time.Minute })
		}
		one, other := start(), start()
		series := func(p *bubble.Proxy) string {
			synctest.Wait()
			var lines strings.Builder
			_, text := p.Admin("/metrics")
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "watchfan_") && !strings.HasPrefix(line, "watchfan_memory_used_bytes ") {
					lines.WriteString(line)
				}
			}
			return lines.String()
		}
		fresh := series(other)
		if got := series(one); got != fresh {
			t.Errorf("a server begins with\n%s\nand another with\n%s", got, fresh)
		}
		one.CMs.Put("ns", "a", "1")
		w := one.Watch(bubble.AnyState)
		w.Await(2)
		one.Get("/version")
		text := series(one)
		for _, c := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"watchfan_watchers", nil, 1},
			{"watchfan_lane_watchers", []string{`resource="configmaps"`}, 1},
			{"watchfan_lanes_filled_total", []string{`source="upstream"`}, 1},
			{"watchfan_identified_requests_total", []string{`identity="own"`}, 2},
			{"watchfan_passthrough_requests_total", []string{`code="404"`}, 1},
		} {
			if got := proxytest.SumMetric(text, c.name, c.labels...); got != c.want {
				t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
			}
		}
		if got := series(other); got != fresh {
			t.Errorf("the other server has\n%s\nand had\n%s", got, fresh)
		}
		w.Close()
		time.Sleep(2 * time.Minute)
		if strings.Contains(series(one), "{group=") {
			t.Error("a lane that has ended has series")
		}
		var process bytes.Buffer
		if metrics.WritePrometheus(&process, false); process.Len() > 0 {
			t.Errorf("the process has\n%s", &process)
		}
	})
}
