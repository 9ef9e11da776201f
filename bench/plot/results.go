package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// A run is one report: its conditions and its benchmark lines.
type run struct {
	conditions map[string]string // date, commit, command, cpu, cores, memory, kernel and the settings
	cases      []benchmark
	timelines  []timeline // of the file beside the report; usually none
}

// A benchmark is one line: a case in one round.
type benchmark struct {
	name   string             // Fanout
	axes   map[string]string  // peer, clients, rate and so on
	values map[string]float64 // by unit: seconds, bytes, and numbers
}

// A timeline is a storm, second by second, of one peer. bench writes it as JSON.
type timeline struct {
	Name    string   `json:"name"` // of the benchmark
	Round   int      `json:"round"`
	Moments []moment `json:"moments"`
}

// A moment is what happened since the moment before.
type moment struct {
	Seconds float64 `json:"seconds"` // since the storm's begin; negative before it
	Live    int64   `json:"live"`    // clients of the storm
	Cores   float64 `json:"cores"`   // processor time of all servers
	P99     float64 `json:"p99"`     // latency of the others, in seconds; 0 without a delivery
}

// readRuns reads all reports of a folder, the newest first.
func readRuns(folder string) (runs []*run, err error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		r, err := readRun(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		runs = append(runs, r)
	}
	slices.SortStableFunc(runs, func(a, b *run) int {
		return cmp.Compare(b.conditions["date"], a.conditions["date"]) // RFC 3339, in UTC
	})
	return runs, nil
}

func readRun(name string) (*run, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &run{conditions: make(map[string]string)}
	lines := benchfmt.NewReader(f, name)
	for lines.Scan() {
		switch line := lines.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, line
		case *benchfmt.Result:
			for _, c := range line.Config {
				r.conditions[c.Key] = string(c.Value)
			}
			r.cases = append(r.cases, newBenchmark(line))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return r, r.readTimelines(strings.TrimSuffix(name, ".txt") + ".json")
}

// readTimelines reads the timelines beside a report, if there are any.
func (r *run) readTimelines(name string) error {
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(content, &r.timelines)
}

func newBenchmark(line *benchfmt.Result) benchmark {
	base, parts := line.Name.Parts()
	b := benchmark{name: string(base), axes: make(map[string]string), values: make(map[string]float64)}
	for _, part := range parts {
		if key, value, ok := strings.Cut(strings.TrimPrefix(string(part), "/"), "="); ok {
			b.axes[key] = value
		}
	}
	for _, v := range line.Values {
		b.values[v.Unit] = v.Value
	}
	return b
}

// number returns an axis as a number; ok is false if it has none.
func (b *benchmark) number(axis string) (n float64, ok bool) {
	n, err := strconv.ParseFloat(b.axes[axis], 64)
	return n, err == nil
}

// peer returns the server, as the pictures name it.
func (b *benchmark) peer() string {
	if b.axes["tls"] == "false" {
		return b.axes["peer"] + ", plaintext"
	}
	return b.axes["peer"] + ", TLS"
}

// A spread is the median of some rounds, with the smallest and the largest.
type spread struct{ low, mid, high float64 }

func newSpread(values []float64, scale float64) spread {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return spread{v[0] * scale, (v[(n-1)/2] + v[n/2]) / 2 * scale, v[n-1] * scale}
}

// spreadOf returns the spread of a unit over the rounds of a case; ok is false if none has it.
func spreadOf(cases []benchmark, unit string, scale float64) (s spread, ok bool) {
	var values []float64
	for _, b := range cases {
		if v, ok := b.values[unit]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return s, false
	}
	return newSpread(values, scale), true
}

// pick returns the cases of a run that f chooses, without those of the floor. That has watchfan's own
// rates, and pictures leave it out.
func (r *run) pick(f func(*benchmark) bool) (cases []benchmark) {
	for i := range r.cases {
		if r.cases[i].axes["peer"] != "writev" && f(&r.cases[i]) {
			cases = append(cases, r.cases[i])
		}
	}
	return cases
}

// usual reports whether watchfan ran with its defaults, and its watchers under kube-apiserver's
// limits.
func (r *run) usual() bool {
	none := []string{"", "0", "0s"}
	return slices.Contains(none, r.conditions["watchfan-behind"]) && slices.Contains(none, r.conditions["flush-interval"])
}

// caption says where, when and how a run was made.
func (r *run) caption() string {
	c := r.conditions
	memory := c["memory"]
	if kb, err := strconv.ParseFloat(strings.TrimSuffix(memory, " kB"), 64); err == nil {
		memory = strconv.FormatFloat(kb/(1<<20), 'f', 1, 64) + " GiB"
	}
	day, _, _ := strings.Cut(c["date"], "T")
	return fmt.Sprintf("%s, %s cores, %s, Linux %s; %s, commit %s: %s", c["cpu"], c["cores"], memory, c["kernel"], day,
		c["commit"], c["command"])
}
