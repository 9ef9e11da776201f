//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/proxy/operate/assess"
)

// A summary is what a demo has shown in all.
type summary struct {
	peer          report.Peer
	updates       uint64
	got           *load.Reading
	clients, lost int
	servers       []measure.Process
	used          measure.Usage
}

// text returns the summary. Behind watchfan, it says what kube-apiserver would have needed.
func (s *summary) text() string {
	var b strings.Builder
	f := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "  %-22s"+format+"\n", append([]any{label}, args...)...)
	}
	fmt.Fprintf(&b, "\nIn %v, over %v:\n", s.used.Window.Round(time.Second), s.peer)
	f("deliveries", "%s of %s updates, to %s clients; %d lost", report.Human(float64(s.got.Deliveries)), report.Human(float64(s.updates)),
		report.Human(float64(s.clients)), s.lost)
	f("latency", "p50 %s, p99 %s", report.Milliseconds(s.got.Latency.Quantile(0.5)), report.Milliseconds(s.got.Latency.Quantile(0.99)))
	for _, p := range s.servers {
		f("CPU of "+p.Name, "%s", cpuSeconds(s.used.CPU[p.Name]))
	}
	if s.got.Deliveries == 0 {
		return b.String()
	}
	server := s.peer.Name
	f("for each delivery", "%s µs of %s", report.Human(1e6*s.used.CPU[server].Seconds()/float64(s.got.Deliveries)), server)
	if s.peer != report.Direct {
		s.writeWithout(&b)
	}
	return b.String()
}

// writeWithout says what kube-apiserver would have needed without watchfan, by the figures of
// bench/README.md.
func (s *summary) writeWithout(b *strings.Builder) {
	each := assess.DeliveryCPU()
	needed := func(seconds float64) time.Duration {
		return time.Duration(seconds * float64(s.got.Deliveries) * float64(time.Second))
	}
	fmt.Fprintf(b, "Without watchfan, kube-apiserver would have needed about %s more (%s to %s) for these deliveries:\n"+
		"%s µs for each (%s to %s), by bench/README.md, on 2 cores of an AMD EPYC.\n"+
		"bin/bench demo --direct measures it on this machine.\n",
		cpuSeconds(needed(each.Mid)), cpuSeconds(needed(each.Low)), cpuSeconds(needed(each.High)),
		report.Human(1e6*each.Mid), report.Human(1e6*each.Low), report.Human(1e6*each.High))
}

func cpuSeconds(d time.Duration) string { return report.Human(d.Seconds()) + " s" }
