//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/proxy/assess"
)

func TestParseWatches(t *testing.T) {
	f := func(page string, want int, wantErr bool) {
		t.Helper()
		got, err := parseWatches(page)
		if got != want || (err != nil) != wantErr {
			t.Errorf("got %d, %v want %d, error %v", got, err, want, wantErr)
		}
	}
	series := func(resource, scope, verb, value string) string {
		return `apiserver_longrunning_requests{component="apiserver",group="",resource="` + resource + `",scope="` + scope +
			`",subresource="",verb="` + verb + `",version="v1"} ` + value + "\n"
	}
	f("# HELP apiserver_longrunning_requests …\n"+
		series("configmaps", "cluster", "WATCH", "1")+series("configmaps", "namespace", "WATCH", "1e+03")+
		series("pods", "cluster", "WATCH", "5")+series("configmaps", "cluster", "CONNECT", "5"), 1001, false)
	f("", 0, false)
	f(series("configmaps", "cluster", "WATCH", "many"), 0, true)
}

// The summary has the CPU of each server, and behind watchfan what kube-apiserver would have needed: the
// deliveries times the figure of bench/README.md.
func TestDemoSummary(t *testing.T) {
	s := summary{peer: report.WatchfanBare, updates: 1500, clients: 1000, got: &load.Reading{Deliveries: 1_500_000},
		servers: []measure.Process{{Name: "kube-apiserver"}, {Name: "watchfan"}},
		used: measure.Usage{Window: 30 * time.Second,
			CPU: map[string]time.Duration{"kube-apiserver": 5 * time.Second, "watchfan": 12 * time.Second}}}
	each := assess.DeliveryCPU()
	for _, want := range []string{
		"\nIn 30s, over watchfan/plain:\n", "1,500,000 of 1,500 updates, to 1,000 clients; 0 lost\n",
		"  CPU of kube-apiserver 5.00 s\n", "  CPU of watchfan       12.0 s\n", "8.00 µs of watchfan\n",
		"would have needed about " + report.Human(each.Mid*1.5e6) + " s more (" + report.Human(each.Low*1.5e6) + " s to " + report.Human(each.High*1.5e6) + " s)",
	} {
		if got := s.text(); !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
	s.peer = report.Direct
	if got := s.text(); !strings.Contains(got, "3.33 µs of kube-apiserver\n") || strings.Contains(got, "Without watchfan") {
		t.Errorf("of kube-apiserver itself:\n%s", got)
	}
	s.got = &load.Reading{}
	if got := s.text(); strings.Contains(got, "for each") || strings.Contains(got, "NaN") {
		t.Errorf("without a delivery:\n%s", got)
	}
}

// Each figure of a line of the demo, and of its view, is explained.
func TestDemoLegend(t *testing.T) {
	v := view{got: &load.Reading{}, servers: []measure.Process{{Name: "watchfan"}}, used: measure.Usage{Window: time.Second}}
	line, screen := v.line(), v.screen()
	for _, name := range []string{"clients", "lost", "upstream", "updates/s", "deliveries/s", "p50", "p99", "%", "MiB", "all else"} {
		if !strings.Contains(line, name) || !strings.Contains(screen, name) || !strings.Contains(legend, name) {
			t.Errorf("%s is missing in the line, the view or the legend:\n%s\n%s%s", name, line, screen, legend)
		}
	}
}

func TestCut(t *testing.T) {
	for line, want := range map[string]string{"": "", "four": "four", "fünf5": "fün…"} {
		if got := cut(line, 4); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
