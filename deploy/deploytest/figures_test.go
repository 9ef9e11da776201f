package deploytest

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// recorded are the figures of a report in bench/results: for each benchmark and unit, a value of each
// round.
type recorded map[string][]float64

// report returns the report whose name ends so: the one that bench/README.md links, otherwise the newest.
func report(t *testing.T, name string) recorded {
	t.Helper()
	files, err := filepath.Glob("../../bench/results/*-" + name + ".txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("bench/results has no report %s: %v", name, err)
	}
	file := slices.Max(files)
	link := regexp.MustCompile(`\(results/(\d{4}-\d\d-\d\d-` + name + `\.txt)\)`)
	if m := link.FindStringSubmatch(readFile(t, "../../bench/README.md")); m != nil {
		file = filepath.Join("../../bench/results", m[1])
	}
	all := make(recorded)
	for line := range strings.Lines(readFile(t, file)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		benchmark := strings.TrimPrefix(fields[0][:strings.LastIndexByte(fields[0], '-')], "Benchmark")
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			key := benchmark + " " + fields[i+1]
			all[key] = append(all[key], value)
		}
	}
	return all
}

// spread returns the median, the least and the most of the rounds, divided by a unit.
func (r recorded) spread(t *testing.T, benchmark, unit string, by float64) []any {
	t.Helper()
	values := slices.Sorted(slices.Values(r[benchmark+" "+unit]))
	n := len(values)
	if n == 0 {
		t.Fatalf("bench/results has no %s of %s", unit, benchmark)
	}
	return []any{(values[n/2] + values[(n-1)/2]) / 2 / by, values[0] / by, values[n-1] / by}
}

// median returns the median of the rounds, divided by a unit.
func (r recorded) median(t *testing.T, benchmark, unit string, by float64) any {
	t.Helper()
	return r.spread(t, benchmark, unit, by)[0]
}

// The figures of the documents are those that bench has recorded.
func TestFigures(t *testing.T) {
	says := func(document, format string, figures ...any) {
		t.Helper()
		want := strings.Join(strings.Fields(fmt.Sprintf(format, figures...)), " ")
		if text := strings.Join(strings.Fields(readFile(t, "../../"+document)), " "); !strings.Contains(text, want) {
			t.Errorf("%s does not say %q", document, want)
		}
	}
	const µs, ms, kib = 1e3, 1e6, 1024
	const k, w, bare = "/peer=kube-apiserver/tls=true", "/peer=watchfan/tls=true", "/peer=watchfan/tls=false"

	run := report(t, "bench")
	fanout := func(peer, rate, unit string, by float64) []any {
		return run.spread(t, "Fanout"+peer+"/clients=1000/rate="+rate, unit, by)
	}
	const one = " %.1f %s (%.1f–%.1f) |"
	for _, c := range []struct {
		row, rate, unit, shown string
		by                     float64
	}{
		{"CPU per delivery of the serving process, 50 updates/s", "50", "cpu-ns/delivery", "µs", µs},
		{"the same, all servers, less the cost of the writes alone", "50", "net-cpu-ns/delivery", "µs", µs},
		{"latency p50, 50 updates/s", "50", "p50-ns", "ms", ms},
		{"CPU per delivery at that rate", "max", "cpu-ns/delivery", "µs", µs},
	} {
		figures := []any{}
		for _, peer := range []string{k, w, bare} {
			f := fanout(peer, c.rate, c.unit, c.by)
			figures = append(figures, f[0], c.shown, f[1], f[2])
		}
		says("bench/README.md", "| "+c.row+" |"+strings.Repeat(one, 3), figures...)
	}
	steady := []any{fanout(w, "50", "cpu-ns/delivery", µs)[0], fanout(k, "50", "cpu-ns/delivery", µs)[0]}
	says("README.md", "less than half of kube-apiserver's CPU, %.1f µs against %.1f µs.", steady...)
	saturated := []any{fanout(w, "max", "p50-ns", ms)[0], fanout(k, "max", "p50-ns", ms)[0]}
	says("README.md", "the same median latency, %.0f ms against %.0f ms,", saturated...)
	says("bench/README.md", "the median latency is the same, %.0f ms against %.0f ms,", saturated...)
	says("deploy/SIZE.md", "at 50 events/s takes %.1f µs of CPU. It takes %.1f µs when saturated, and %.0f µs with 100 watchers.", steady[0],
		fanout(w, "max", "cpu-ns/delivery", µs)[0], run.median(t, "Fanout"+w+"/clients=100/rate=50", "cpu-ns/delivery", µs))
	idle := run.spread(t, "Idle"+w+"/clients=1000", "B/watcher", kib)
	says("bench/README.md", "| resident memory per idle watcher | %.0f KiB (%.0f–%.0f) | %.0f KiB (%.0f–%.0f) |",
		append(run.spread(t, "Idle"+k+"/clients=1000", "B/watcher", kib), idle...)...)
	says("deploy/SIZE.md", "An idle watch with an HTTP/1.1 connection of its own takes %.0f KiB.", idle[0])

	join := func(peer, asked string) any {
		return run.median(t, "Resync"+peer+"/asked="+asked, "cpu-ns/client", ms)
	}
	says("README.md", "| CPU for a client that begins a watch of 5,000 pods, with gzip | %.0f ms | %.2f ms |", join(k, "gzip"), join(w, "gzip"))
	says("bench/README.md", "| CPU for a client that begins a watch of 5,000 pods | %.0f ms; %.0f ms if it accepts gzip | %.1f ms, with gzip %.2f ms |",
		join(k, "identity"), join(k, "gzip"), join(w, "identity"), join(w, "gzip"))

	http2 := report(t, "http2")
	shared := "/protocol=h2/clients=1000/streams=50/windows=client-go/rate=50/asked=identity"
	kube, fan := http2.spread(t, "HTTP2"+k+shared, "cpu-ns/delivery", µs), http2.spread(t, "HTTP2"+w+shared, "cpu-ns/delivery", µs)
	says("README.md", "50 on each HTTP/2 connection | %.1f µs | %.1f µs |", kube[0], fan[0])
	says("bench/README.md", "50 updates/s | %.1f µs (%.1f–%.1f) | %.1f µs (%.1f–%.1f) |", append(kube, fan...)...)
	says("deploy/SIZE.md", "a watch then takes %.1f KiB, and %.1f µs of CPU for an event at 50 events/s.",
		http2.median(t, "HTTP2"+w+"/protocol=h2/clients=10000/streams=100/windows=seldom/rate=idle/asked=identity", "B/watcher", kib), fan[0])

	floored := report(t, "http2-floor")
	for streams, row := range map[int]string{50: "CPU per delivery, 50 updates/s, 50 watches on a connection",
		1: "the same, a connection for each watch"} {
		axes := fmt.Sprintf("/protocol=h2/clients=1000/streams=%d/windows=seldom/rate=50/asked=identity", streams)
		figures := []any{}
		for _, peer := range []string{k, w, "/peer=writev/tls=true"} {
			f := floored.spread(t, "HTTP2"+peer+axes, "cpu-ns/delivery", µs)
			figures = append(figures, f[0], "µs", f[1], f[2])
		}
		says("bench/results/README.md", "| "+row+" |"+strings.Repeat(one, 3), figures...)
	}

	during := run.median(t, "Storm"+w+"/storm=informers/priority=normal/clients=5000", "during-p99-ns", ms)
	says("README.md", "while 5,000 informers come at once | it ended 499 of them | %.0f ms |", during)
	says("bench/README.md", "| it ended 499 of the 500 others | %.1f s, %.0f → %.0f ms |",
		run.median(t, "Storm"+w+"/storm=informers/priority=normal/clients=5000", "live-ns", 1e9),
		run.median(t, "Storm"+w+"/storm=informers/priority=normal/clients=5000", "before-p99-ns", ms), during)

	start := report(t, "scale-start")
	began := func(peer, row, unit string, by float64) []any {
		return start.spread(t, "Scale"+peer+"/row="+row+"/pods=100000", unit, by)
	}
	says("bench/README.md", "a cache is filled with them | %.2f s (%.2f–%.2f) | %.2f s (%.2f–%.2f),",
		append(began(k, "fill", "wall-ns", 1e9), began(w, "fill", "wall-ns", 1e9)...)...)
	says("bench/README.md", "of the objects' bytes | | %.2f times (%.2f–%.2f) |", began(w, "fill", "x-objects", 1)...)
	says("bench/README.md", "with `--cache-dir` | | %.2f s (%.2f–%.2f),", began(w, "restart", "wall-ns", 1e9)...)
	says("bench/README.md", "of that for whole pods | | %.2f |", began(w, "memory-lean", "x-whole", 1)[0])

	why := "deploy/WHY-NOT-WAIT.md"
	beside := regexp.MustCompile(`beside kube-apiserver (\S+),`).FindStringSubmatch(readFile(t, "../../README.md"))
	says(why, "The figures are of kube-apiserver %s;", beside[1])
	says(why, "%.0f ms of CPU for 5,000 pods with gzip. Here one is made for all, %.2f ms each |", join(k, "gzip"), join(w, "gzip"))
	says(why, "p99 of 500 others while 5,000 informers come is %.0f ms here |", during)
	says(why, "| %.1f µs there, %.1f µs here, with 50 watches on an HTTP/2 connection |", kube[0], fan[0])

	views := report(t, "views")
	ratios := func(unit string) (figures []any) {
		for _, reader := range []string{"controllers/view=rollout", "controllers/view=kgateway", "external-dns/view=external-dns",
			"kube-state-metrics/view=kube-state-metrics"} {
			at := func(peer string) float64 { return views.median(t, "Views"+peer+"/program="+reader, unit, 1).(float64) }
			figures = append(figures, at(w)/at(k))
		}
		return figures
	}
	const four = " %.2f | %.2f | %.2f | %.2f |"
	says("bench/README.md", "| CPU while pods [are replaced](results/README.md#a-rollout) |"+four, ratios("rollout-cpu-ns")...)
	says("bench/README.md", "| bytes meanwhile |"+four, ratios("rollout-B")...)
	says("bench/README.md", "| events of pods |"+four, ratios("rollout-events")...)
	forms := func(reader string) any { return views.median(t, "Views"+w+"/program="+reader, "forms/objects", 1) }
	says("deploy/SIZE.md", "A view in use takes %.2f of its objects' bytes more if it keeps a little of them, and kube-state-metrics' %.2f;",
		forms("controllers/view=kgateway"), forms("kube-state-metrics/view=kube-state-metrics"))

	slices := report(t, "slices")
	large := func(peer, protocol string) any {
		return slices.median(t, "Slices"+peer+"/protocol="+protocol+"/clients=5000/asked=identity/rate=5", "cpu-ns/delivery", µs)
	}
	says("bench/results/README.md", "| HTTP/1.1, 5 updates/s | %.1f | %.1f |", large(k, "h1"), large(w, "h1"))
	says("bench/results/README.md", "| HTTP/2, 5 updates/s | %.1f | %.1f |", large(k, "h2"), large(w, "h2"))
	grown := func(protocol string) any {
		return slices.median(t, "Slices"+w+"/protocol="+protocol+"/clients=5000/asked=identity/rate=5", "RSS-B", kib*kib)
	}
	says("deploy/SIZE.md", "an event to one of them takes %.1f µs over HTTP/1.1 and %.0f µs over HTTP/2. The process has %.0f and %.0f MiB.",
		large(w, "h1"), large(w, "h2"), grown("h1"), grown("h2"))

	scale := report(t, "scale")
	joiner := func(peer string, by float64) []any {
		return scale.spread(t, "Scale"+peer+"/row=join-node/pods=100000", "cpu-ns/request", by)
	}
	says("deploy/RECIPES.md", "an agent that starts costs watchfan %.2f ms of CPU (%.2f–%.1f), and kube-apiserver %.0f ms (%.0f–%.0f)",
		append(joiner(w, ms), joiner(k, ms)...)...)
}
