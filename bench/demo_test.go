package main

import (
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
)

// The summary has the CPU of each server, and that for a delivery of the one that is watched.
func TestDemoSummary(t *testing.T) {
	d := &demo{peer: report.WatchfanBare, clients: 1000}
	r := &result{writes: 1500, got: load.Reading{Deliveries: 1_500_000}, Usage: measure.Usage{Window: 30 * time.Second,
		CPU: map[string]time.Duration{"kube-apiserver": 5 * time.Second, "watchfan": 12 * time.Second}}}
	for _, want := range []string{
		"\nIn 30s, over watchfan/plain:\n", "1,500,000 of 1,500 updates, to 1,000 clients\n",
		"  CPU of kube-apiserver 5.00 s\n", "  CPU of watchfan       12.0 s\n", "8.00 µs of watchfan\n",
	} {
		if got := d.summary(r); !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
	d.peer = report.Direct
	if got := d.summary(r); !strings.Contains(got, "3.33 µs of kube-apiserver\n") {
		t.Errorf("of kube-apiserver itself:\n%s", got)
	}
	r.got = load.Reading{}
	if got := d.summary(r); strings.Contains(got, "for each") || strings.Contains(got, "NaN") {
		t.Errorf("without a delivery:\n%s", got)
	}
}
