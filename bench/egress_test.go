//go:build linux

package main

import (
	"testing"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
)

// TestEgressCases: kube-apiserver has no lean watchers, HTTP/2 needs TLS, and as many watchers are
// lean as asked for.
func TestEgressCases(t *testing.T) {
	o := defaults()
	o.Protocols, o.Lean = []load.Protocol{load.HTTP11, load.HTTP20}, []int{0, 50, 100}
	for p, want := range map[report.Peer]int{report.Direct: 4, report.WatchfanTLS: 12, report.WatchfanBare: 6} {
		cases := o.egressCases(p)
		if len(cases) != want {
			t.Errorf("%v: %d cases, want %d", p, len(cases), want)
		}
		for _, c := range cases {
			lean := 0
			for i := range 200 {
				if c.isLean(i) {
					lean++
				}
			}
			if lean != 2*c.lean || p == report.Direct && lean > 0 || !p.TLS && c.protocol == load.HTTP20 {
				t.Errorf("%v: %+v has %d lean watchers of 200", p, c, lean)
			}
		}
	}
}
