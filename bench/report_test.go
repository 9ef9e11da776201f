//go:build linux

package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// sampleResults is a run of two rounds with all kinds of results.
func sampleResults() (results []result) {
	for round := 1; round <= 2; round++ {
		for _, p := range []peer{direct, watchfanBare} {
			factor := time.Duration(round)
			if p == direct {
				factor *= 3
			}
			results = append(results, result{peer: p, clients: 1000, idle: true, round: round,
				Usage: measure.Usage{RSS: map[string]int64{p.name: 300 << 20}},
				grew:  map[string]float64{p.name: 8192 * float64(factor)}, kernel: measure.KernelMemory{Structures: 10 << 20, Buffers: 1 << 20}})
			paced := result{peer: p, clients: 1000, rate: 50, round: round, writes: 100,
				Usage: measure.Usage{Window: 2 * time.Second, Others: 10 * time.Millisecond, RSS: map[string]int64{p.name: 400 << 20},
					CPU: map[string]time.Duration{"bench": time.Second, "etcd": 100 * time.Millisecond, p.name: 600 * time.Millisecond * factor}},
				got: reading{deliveries: 100_000, early: 1000, bytes: 186_000_000}}
			var h measure.Histogram
			for range 1000 {
				h.Record(time.Millisecond * factor)
			}
			paced.got.latency.Add(&h)
			results = append(results, paced)
			failed := result{peer: p, clients: 1000, rate: unpaced, round: round, err: errors.New("3 of 1000 watchers lost")}
			if round == 2 {
				failed = paced
				failed.rate = unpaced
			}
			results = append(results, failed)
		}
		results = append(results, result{peer: direct, clients: 0, rate: 50, round: round, writes: 100,
			Usage: measure.Usage{Window: 2 * time.Second,
				CPU: map[string]time.Duration{"bench": time.Second, "etcd": 100 * time.Millisecond, "kube-apiserver": 200 * time.Millisecond}}})
		for _, twin := range floorTwins(results, floorBare, round, false) {
			twin.peer, twin.batch = floorBare, 1.5
			twin.CPU = map[string]time.Duration{"bench": time.Second, "writev": 300 * time.Millisecond}
			results = append(results, twin)
		}
	}
	subtractWrites(results)
	return results
}

func TestReport(t *testing.T) {
	var got bytes.Buffer
	writeTables(&got, sampleResults())
	writeBenchmarks(&got, sampleResults())
	text := regexp.MustCompile(`(?m)-\d+\t1\t`).ReplaceAllString(got.String(), "-2\t1\t") // this machine's cores
	golden := filepath.Join("testdata", "report.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// TestBenchmarkFormat holds every line to the grammar of the Go benchmark format (golang.org/design/14313-benchmark-format):
// a name with the number of cores, an iteration count, pairs of value and unit, no unit twice.
func TestBenchmarkFormat(t *testing.T) {
	line := regexp.MustCompile(`^Benchmark[A-Z]\w*(/[a-z]+=[^\s/]+)+-\d+\t1(\t[-+.0-9]+ \S+)+$`)
	var out bytes.Buffer
	writeBenchmarks(&out, sampleResults())
	n := 0
	for text := range strings.Lines(out.String()) {
		if text = strings.TrimSuffix(text, "\n"); strings.HasPrefix(text, "# ") {
			continue
		}
		n++
		if !line.MatchString(text) {
			t.Errorf("not in the format: %q", text)
		}
		seen := make(map[string]bool)
		for _, pair := range strings.Split(text, "\t")[2:] {
			_, unit, _ := strings.Cut(pair, " ")
			if seen[unit] {
				t.Errorf("unit %s twice: %q", unit, text)
			}
			seen[unit] = true
		}
	}
	if n != 15 {
		t.Errorf("got %d benchmark lines want 15", n)
	}
	conditionLine := regexp.MustCompile(`^[a-z][^\sA-Z]*: .+$`)
	for _, c := range newConditions(defaults()) {
		if !conditionLine.MatchString(c) {
			t.Errorf("not a `key: value` line: %q", c)
		}
	}
}

func TestHuman(t *testing.T) {
	f := func(v float64, want string) {
		t.Helper()
		if got := human(v); got != want {
			t.Errorf("human(%v): got %q want %q", v, got, want)
		}
	}
	f(0, "0.00")
	f(0.0123, "0.012")
	f(1.234, "1.23")
	f(12.34, "12.3")
	f(123.4, "123")
	f(1234, "1,234")
	f(1234567, "1,234,567")
	f(-1234, "-1,234")
}

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
	f("# HELP apiserver_longrunning_requests …\n"+series("configmaps", "cluster", "WATCH", "1")+series("configmaps", "namespace", "WATCH", "1e+03")+
		series("pods", "cluster", "WATCH", "5")+series("configmaps", "cluster", "CONNECT", "5"), 1001, false)
	f("", 0, false)
	f(series("configmaps", "cluster", "WATCH", "many"), 0, true)
}

func TestOptions(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := func(want string, args ...string) {
		t.Helper()
		o := defaults()
		fs := flag.NewFlagSet("bench", flag.ContinueOnError)
		fs.SetOutput(t.Output())
		o.AddFlags(fs)
		err := fs.Parse(append([]string{"--devcluster", program, "--watchfan", program}, args...))
		if err == nil {
			err = o.Validate()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: got %v want %q", args, err, want)
		}
	}
	f("")
	f("", "--quick", "--peers", "watchfan/plain, kube-apiserver/tls", "--clients", "0,10", "--rates", "max,12.5")
	f("want one of kube-apiserver/tls,watchfan/tls,watchfan/plain", "--peers", "kube-apiserver/plain")
	f("want max or a number", "--rates", "-1")
	f("want max or a number", "--rates", "NaN")
	f("must not be negative", "--clients", "-1")
	f("must be positive", "--rounds", "0")
	f("not a path", "--out", "../x")
	f("", "--parts", "nodes,dispatch", "--pods", "50", "--stalled", "5")
	f("", "--full")
	f("want one of traffic,dispatch,stalled,crowd,resync,egress,nodes", "--parts", "all")
	f("percentages", "--stalled", "100")
	f("--pods must be at least 50", "--pods", "49")
	f("", "--pods", "49", "--parts", "resync")
	f("raise the hard limit", "--clients", "100000000")
	f("make devcluster", "--devcluster", "/nonexistent")
	f("not a program", "--watchfan", "/etc/passwd")
}

func TestOffered(t *testing.T) {
	o := defaults()
	f := func(asked rate, watchers int, want rate) {
		t.Helper()
		if got := o.offered(asked, watchers); got != want {
			t.Errorf("%v/s to %d watchers: got %v want %v", asked, watchers, got, want)
		}
	}
	f(50, 1000, 50)
	f(50, 100, 50)
	f(50, 20_000, 2.5)
	f(50, 19_000, 2.63)
	f(50, 0, 50)
	f(unpaced, 20_000, unpaced)
}
