//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A listResult is one case in one round.
type listResult struct {
	err error // why the figures are invalid

	deliverer string // name of the delivering process
	measure.Usage
	lists    lists
	upstream upstreamCounts
}

// String returns one line for the log.
func (r *listResult) String() string {
	if r.err != nil {
		return "FAILED: " + r.err.Error()
	}
	perSecond, cpu := float64(r.lists.count)/r.Window.Seconds(), r.perList(serversCPU(&r.Usage))
	return fmt.Sprintf("%s lists/s, %s ms of CPU each", human(perSecond), human(cpu*1e-6))
}

func (r *listResult) perList(d time.Duration) float64 { return float64(d) / float64(r.lists.count) }

// Units of lists, by name for the tables; see also traffic_report.go.
const (
	unitLists       = "lists/s"
	unitListCPU     = "cpu-ns/list"     // of the delivering server
	unitAllListCPU  = "all-cpu-ns/list" // of all servers
	unitListsPerCPU = "lists/cpu-s"     // per second of all servers' CPU
	unitListBytes   = "B/list"          // on the wire
	unitUpstream    = "upstream/list"   // lists of pods at kube-apiserver
	unitPassed      = "passed/list"     // requests that watchfan passed through
)

// metrics returns the figures of a result without an error.
func (r *listResult) metrics() []metric {
	n, servers := float64(r.lists.count), serversCPU(&r.Usage)
	m := []metric{
		{unitLists, n / r.Window.Seconds()},
		{unitListCPU, r.perList(r.CPU[r.deliverer])},
		{unitAllListCPU, r.perList(servers)},
		{unitListsPerCPU, n / max(servers, measure.Tick).Seconds()},
		{unitP50, float64(r.lists.latency.Quantile(0.50))},
		{unitP99, float64(r.lists.latency.Quantile(0.99))},
		{unitListBytes, float64(r.lists.wire) / n},
		{unitUpstream, r.upstream.lists / n},
		{unitPassed, r.upstream.passed / n},
		{"lists", n},
		{"RSS-B", float64(r.RSS[r.deliverer])},
	}
	return append(m, usageMetrics(&r.Usage)...)
}

// get returns the value of one metric.
func (r *listResult) get(unit string) (float64, bool) {
	if r.err != nil {
		return 0, false
	}
	return find(r.metrics(), unit)
}

// good returns the rounds with figures.
func (c *listCase) good() (rounds []*listResult) {
	for i := range c.rounds {
		if c.rounds[i].err == nil {
			rounds = append(rounds, &c.rounds[i])
		}
	}
	return rounds
}

func (c *listCase) values(unit string) (v []float64) {
	for _, r := range c.good() {
		if value, ok := r.get(unit); ok {
			v = append(v, value)
		}
	}
	return v
}

// ratios divides each round by kube-apiserver's.
func (c *listCase) ratios(unit string) (v []float64) {
	if c.direct == nil {
		return nil
	}
	for i := range min(len(c.rounds), len(c.direct.rounds)) {
		ours, ok := c.rounds[i].get(unit)
		theirs, also := c.direct.rounds[i].get(unit)
		if ok && also && theirs > 0 {
			v = append(v, ours/theirs)
		}
	}
	return v
}

// cells returns the first cells of a row.
func (c *listCase) cells() []string {
	version := c.form.version
	if version == "" {
		version = "unset"
	}
	return []string{version, c.form.format, c.form.encoding, string(c.form.protocol), c.peer.String()}
}

var listColumns = []column{
	{"lists/s", unitLists, 1},
	{"CPU ms/list", unitListCPU, 1e-6},
	{"all servers", unitAllListCPU, 1e-6},
	{"lists/CPU-s", unitListsPerCPU, 1},
	{"p50 ms", unitP50, 1e-6},
	{"p99 ms", unitP99, 1e-6},
	{"MB/list", unitListBytes, 1e-6},
	{"upstream", unitUpstream, 1},
	{"passed", unitPassed, 1},
}

// writeListTables writes medians over the rounds and ratios to kube-apiserver, as writeTables does.
func writeListTables(w io.Writer, cases []*listCase) {
	writeListTable(w, "Lists: median of rounds (smallest–largest)", cases, listColumns,
		func(c *listCase, col column) string { return summarise(c.values(col.unit), col.scale) }, (*listCase).failures)
	proxies := slices.DeleteFunc(slices.Clone(cases), func(c *listCase) bool { return c.direct == nil })
	costs := listColumns[:len(listColumns)-2] // the last two are no costs
	writeListTable(w, "Ratio to kube-apiserver in the same round: median (smallest–largest)", proxies, costs,
		func(c *listCase, col column) string { return summarise(c.ratios(col.unit), 1) }, nil)
	var disturbed []float64
	for _, c := range cases {
		for _, r := range c.good() {
			disturbed = append(disturbed, r.Percent(r.Others))
		}
	}
	writeDisturbance(w, disturbed)
	for _, c := range cases {
		for i, r := range c.rounds {
			if r.err != nil {
				fmt.Fprintf(w, "FAILED  %s, round %d: %v\n", c.name(), i+1, r.err)
			}
		}
	}
}

// writeListTable writes a row for each case: a cell for each column, and a remark if about is not
// nil and has one.
func writeListTable(w io.Writer, title string, cases []*listCase, columns []column,
	cell func(*listCase, column) string, about func(*listCase) []string) {
	table(w, title, func(row func(...string)) {
		header := []string{"version", "format", "encoding", "protocol", "peer"}
		for _, col := range columns {
			header = append(header, col.title)
		}
		row(header...)
		for _, c := range cases {
			cells := c.cells()
			for _, col := range columns {
				cells = append(cells, cell(c, col))
			}
			if about != nil {
				cells = append(cells, about(c)...)
			}
			row(cells...)
		}
	})
}

// failures is a cell that says how many rounds have no figures, or no cell.
func (c *listCase) failures() []string {
	if failed := len(c.rounds) - len(c.good()); failed > 0 {
		return []string{fmt.Sprintf("%d of %d rounds FAILED", failed, len(c.rounds))}
	}
	return nil
}

// writeListBenchmarks writes one line of the Go benchmark format for each round of each case, as
// writeBenchmarks does.
func writeListBenchmarks(w io.Writer, cases []*listCase) {
	for _, c := range cases {
		for i, r := range c.rounds {
			if r.err != nil {
				fmt.Fprintf(w, "# %s round %d FAILED: %v\n", c.name(), i+1, r.err)
				continue
			}
			writeBenchmark(w, c.name(), r.metrics())
		}
	}
}
