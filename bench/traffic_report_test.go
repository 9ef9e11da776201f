//go:build linux

package main

import (
	"bytes"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// sampleResults is a run of two rounds with all kinds of results.
func sampleResults() (results []result) {
	for round := 1; round <= 2; round++ {
		for _, p := range []peer{direct, watchfanBare} {
			factor, kernel := time.Duration(round), measure.KernelMemory{Structures: 10 << 20, Buffers: 1 << 20}
			if p == direct {
				factor *= 3
			}
			results = append(results, result{peer: p, clients: 1000, idle: true, round: round,
				Usage: measure.Usage{RSS: map[string]int64{p.name: 300 << 20}},
				grew:  map[string]float64{p.name: 8192 * float64(factor)}, kernel: kernel})
			paced := result{peer: p, clients: 1000, rate: 50, round: round, writes: 100,
				Usage: measure.Usage{Window: 2 * time.Second, Others: 10 * time.Millisecond,
					RSS: map[string]int64{p.name: 400 << 20},
					CPU: map[string]time.Duration{
						"bench": time.Second, "etcd": 100 * time.Millisecond, p.name: 600 * time.Millisecond * factor,
					}},
				got: reading{deliveries: 100_000, early: 1000, bytes: 186_000_000}}
			var h measure.Histogram
			for range 1000 {
				h.Record(time.Millisecond * factor)
			}
			paced.got.latency.Add(&h)
			if p != direct {
				paced.own = []metric{{"first-p99-ns", 2e5 * float64(round)}, {"round-p99-ns", 4e6}}
			}
			results = append(results, paced)
			failed := result{peer: p, clients: 1000, rate: unpaced, round: round, err: errors.New("3 of 1000 watchers lost")}
			if round == 2 {
				failed = paced
				failed.rate = unpaced
			}
			results = append(results, failed)
		}
		results = append(results, result{peer: direct, clients: 0, rate: 50, round: round, writes: 100,
			Usage: measure.Usage{Window: 2 * time.Second, CPU: map[string]time.Duration{
				"bench": time.Second, "etcd": 100 * time.Millisecond, "kube-apiserver": 200 * time.Millisecond,
			}}})
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
	sameAsGolden(t, "report.golden", got.String())
}

// TestBenchmarkFormat: each line of the benchmarks and of the conditions has its format.
func TestBenchmarkFormat(t *testing.T) {
	var out bytes.Buffer
	writeBenchmarks(&out, sampleResults())
	if n := benchmarkLines(t, out.String()); n != 15 {
		t.Errorf("got %d benchmark lines want 15", n)
	}
	conditionLine := regexp.MustCompile(`^[a-z][^\sA-Z]*: .+$`)
	for _, c := range newConditions(defaults()) {
		if !conditionLine.MatchString(c) {
			t.Errorf("not a `key: value` line: %q", c)
		}
	}
}
