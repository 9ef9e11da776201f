package assess

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The figures are those of the documents and of bench's results.
func TestFigures(t *testing.T) {
	const lists = "bench/results/2026-11-27-lists-kube-apiserver-1.37.2.txt"
	us := func(seconds float64) string { return fmt.Sprintf("%.1f µs", seconds*1e6) }
	ms := func(seconds float64, format string) string { return fmt.Sprintf(format, seconds*5000*1e3) }
	k, w := deliveryCost.apiserver, deliveryCost.watchfan
	for _, c := range []struct{ file, says string }{
		{"bench/README.md", fmt.Sprintf("less the cost of the writes alone | %s (", us(k.Mid))},
		{"bench/README.md", fmt.Sprintf("CPU per delivery at that rate | 9.8 µs (%.1f–10.4) | 2.6 µs (%.1f–2.9) |", k.Low*1e6, w.Low*1e6)},
		{"bench/README.md", fmt.Sprintf("CPU per delivery of those, 20/s to 1,000 | %.0f µs,", k.High*1e6)},
		{"bench/README.md", fmt.Sprintf("CPU per delivery of the serving process, 50 updates/s | 22.0 µs (19.6–23.0) | %s", us(w.Mid))},
		{"deploy/SIZE.md", fmt.Sprintf("and %.0f µs with 100 watchers", w.High*1e6)},
		{"bench/README.md", fmt.Sprintf("begins a watch of 5,000 pods | %s; 316 ms if it accepts gzip | %s,", ms(objectCost.apiserver.High, "%.0f ms"), ms(objectCost.watchfan.Mid, "%.1f ms"))},
		{lists, "kube-apiserver/tls json identity 0 whole 8.65 " + ms(objectCost.apiserver.Mid, "%.0f")},
		{lists, "watchfan/tls json identity 0 whole 106 " + ms(objectCost.watchfan.High, "%.2f")},
		{lists, "kube-apiserver/tls json gzip 0 whole 12.9 " + ms(objectCost.apiserver.Low, "%.0f")},
		{lists, "watchfan/tls json gzip 0 whole 1,145 " + ms(objectCost.watchfan.Low, "%.2f")},
		{"bench/README.md", fmt.Sprintf("memory per idle watcher | %.0f KiB (%.0f–%.0f) | %.0f KiB (%.0f–", watchMemory.apiserver.Mid/kib,
			watchMemory.apiserver.Low/kib, watchMemory.apiserver.High/kib, watchMemory.watchfan.Mid/kib, watchMemory.watchfan.Low/kib)},
		{"deploy/SIZE.md", fmt.Sprintf("The formulas use %.0f KiB", watchMemory.watchfan.High/kib)},
		{"deploy/SIZE.md", fmt.Sprintf("kube-apiserver takes %.2f ms", reviewCost.Mid*1e3)},
		{"deploy/SIZE.md", fmt.Sprintf("That was %.2f to %.2f ms", reviewCost.Low*1e3, reviewCost.High*1e3)},
		{"deploy/SIZE.md", fmt.Sprintf("/ %d s × %.2f ms", reviewInterval, reviewCost.Mid*1e3)},
		{"deploy/SIZE.md", fmt.Sprintf("A process without clients has %.0f MB", processMemory/1e6)},
		{"deploy/SIZE.md", fmt.Sprintf("so %.1f bytes for each byte cached", cacheFactor)},
		{"deploy/SIZE.md", fmt.Sprintf("%d × (%d MiB + %.0f KiB × watches / (replicas − 1) + objects + %d MiB × busy resources)",
			garbageFactor, baseMemory/mib, watchMemory.watchfan.High/kib, busyMemory/mib)},
	} {
		content, err := os.ReadFile("../../../" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(string(content)), " "), strings.Join(strings.Fields(c.says), " ")) {
			t.Errorf("%s does not say %q", c.file, c.says)
		}
	}
	for _, r := range []Range{k, w, objectCost.apiserver, objectCost.watchfan, watchMemory.apiserver, watchMemory.watchfan, reviewCost, requestCost.apiserver, requestCost.watchfan} {
		if !(0 < r.Low && r.Low <= r.Mid && r.Mid <= r.High) {
			t.Errorf("%+v is no range", r)
		}
	}
}
