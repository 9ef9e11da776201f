//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
)

var columns = []column{
	{"writes/s", unitWrites, 1},
	{"deliveries/s", unitDeliveries, 1},
	{"CPU µs/delivery", unitCPU, 1e-3},
	{"deliveries/core-s", unitPerCore, 1},
	{"events/write", unitBatch, 1},
	{"all servers", unitAllCPU, 1e-3},
	{"net of writes", unitNetCPU, 1e-3},
	{"p50 ms", unitP50, 1e-6},
	{"p99 ms", unitP99, 1e-6},
	{"p99.9 ms", unitP999, 1e-6},
	{"first write p99 ms", "first-p99-ns", 1e-6},
	{"round p99 ms", "round-p99-ns", 1e-6},
}

// writeTables writes medians over the rounds, with the smallest and the largest round in brackets,
// and for each proxy its ratio to kube-apiserver.
func writeTables(w io.Writer, results []result) {
	cases := group(results)
	writeTrafficTable(w, "Traffic: median of rounds (smallest–largest)", cases,
		func(rounds []result, c column) string { return summarise(values(rounds, c.unit), c.scale) }, failures)
	proxies := slices.DeleteFunc(slices.Clone(cases), func(rounds []result) bool { return rounds[0].peer == direct })
	writeTrafficTable(w, "Ratio to kube-apiserver in the same round: median (smallest–largest)", proxies,
		func(rounds []result, c column) string { return summarise(ratios(rounds, results, c.unit), 1) }, nil)
	writeFloorTable(w, cases, results)
	writeMemoryTable(w, cases, results)
	writeWritesTable(w, cases)
	var disturbed []float64
	for _, r := range results {
		if !r.idle && r.Window > 0 {
			disturbed = append(disturbed, 100*r.Others.Seconds()/r.Window.Seconds())
		}
	}
	writeDisturbance(w, disturbed)
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(w, "FAILED  %s, round %d: %v\n", r.name(), r.round, r.err)
		}
	}
}

// writeTrafficTable writes a row for each case with traffic: a cell for each column, and a remark
// if about is not nil.
func writeTrafficTable(w io.Writer, title string, cases [][]result,
	cell func([]result, column) string, about func([]result) string) {
	table(w, title, func(row func(...string)) {
		header := []string{"peer", "watchers", "asked/s"}
		for _, c := range columns {
			header = append(header, c.title)
		}
		row(header...)
		for _, rounds := range cases {
			first := &rounds[0]
			if first.idle {
				continue
			}
			cells := []string{first.peer.String(), strconv.Itoa(first.clients), first.rate.String()}
			for _, c := range columns {
				cells = append(cells, cell(rounds, c))
			}
			if about != nil {
				cells = append(cells, about(rounds))
			}
			row(cells...)
		}
	})
}

func writeFloorTable(w io.Writer, cases [][]result, results []result) {
	const title = "Above the floor: divided by what one writev for the same events takes, " +
		"at the same rate in the same round"
	table(w, title, func(row func(...string)) {
		row("peer", "watchers", "asked/s", "CPU µs/delivery", "of the floor", "ratio")
		for _, rounds := range cases {
			first := &rounds[0]
			floor := peer{floorBare.name, first.peer.tls}
			v := ratiosTo(floor, rounds, results, unitCPU)
			if first.peer.name != watchfanBare.name || len(v) == 0 {
				continue
			}
			row(first.peer.String(), strconv.Itoa(first.clients), first.rate.String(), summarise(values(rounds, unitCPU), 1e-3),
				summarise(values(twins(floor, rounds, results), unitCPU), 1e-3), summarise(v, 1))
		}
	})
}

func writeMemoryTable(w io.Writer, cases [][]result, results []result) {
	const title = "Memory per idle watcher: resident in the server, and in the kernel for both ends of the connection"
	table(w, title, func(row func(...string)) {
		row("peer", "watchers", "KiB/watcher", "ratio to kube-apiserver", "kernel KiB/watcher", "TCP buffers KiB/watcher")
		for _, rounds := range cases {
			first := &rounds[0]
			if !first.idle {
				continue
			}
			kib := func(unit string) string { return summarise(values(rounds, unit), 1.0/1024) }
			row(first.peer.String(), strconv.Itoa(first.clients), kib(unitMemory),
				summarise(ratios(rounds, results, unitMemory), 1), kib(unitKernel), kib(unitBuffers))
		}
	})
}

func writeWritesTable(w io.Writer, cases [][]result) {
	const title = "Writes without any watcher: CPU of all servers, to subtract where a case is about few deliveries"
	table(w, title, func(row func(...string)) {
		row("asked/s", "writes/s", "CPU µs/write")
		for _, rounds := range cases {
			if first := &rounds[0]; !first.idle && first.clients == 0 {
				row(first.rate.String(), summarise(values(rounds, unitWrites), 1), summarise(values(rounds, unitWriteCPU), 1e-3))
			}
		}
	})
}

// group collects the rounds of each case, in the order of first measurement.
func group(results []result) (cases [][]result) {
	at := make(map[string]int)
	for _, r := range results {
		i, ok := at[r.name()]
		if !ok {
			i = len(cases)
			at[r.name()] = i
			cases = append(cases, nil)
		}
		cases[i] = append(cases[i], r)
	}
	return cases
}

func values(rounds []result, unit string) (v []float64) {
	for i := range rounds {
		if value, ok := rounds[i].get(unit); ok {
			v = append(v, value)
		}
	}
	return v
}

// ratios divides each round of a case by kube-apiserver's in the same round.
func ratios(rounds, results []result, unit string) []float64 {
	return ratiosTo(direct, rounds, results, unit)
}

// ratiosTo divides each round of a case by another peer's in the same round.
func ratiosTo(p peer, rounds, results []result, unit string) (v []float64) {
	for i := range rounds {
		ours, ok := rounds[i].get(unit)
		for _, twin := range twins(p, rounds[i:i+1], results) {
			if theirs, also := twin.get(unit); ok && also && theirs > 0 {
				v = append(v, ours/theirs)
			}
		}
	}
	return v
}

// twins returns another peer's results in the same case and the same rounds.
func twins(p peer, rounds, results []result) (all []result) {
	for _, r := range rounds {
		for _, twin := range results {
			if twin.peer == p && twin.idle == r.idle && twin.round == r.round &&
				twin.clients == r.clients && twin.rate == r.rate {
				all = append(all, twin)
			}
		}
	}
	return all
}

// failures returns the number of rounds without figures, in words, or "".
func failures(rounds []result) string {
	n := 0
	for _, r := range rounds {
		if r.err != nil {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d rounds FAILED", n, len(rounds))
}

// Units of traffic and memory, by name for the tables.
const (
	unitCPU        = "cpu-ns/delivery"     // of the delivering server
	unitAllCPU     = "all-cpu-ns/delivery" // of all servers
	unitNetCPU     = "net-cpu-ns/delivery" // of all servers, less the cost of the same writes without a watcher
	unitWriteCPU   = "all-cpu-ns/write"    // of all servers, with no watcher
	unitDeliveries = "deliveries/s"
	unitWrites     = "writes/s"
	unitP50        = "p50-ns"
	unitP99        = "p99-ns"
	unitP999       = "p99.9-ns"
	unitPerCore    = "deliveries/core-s" // per second of a core of the delivering server
	unitBatch      = "events/write"      // in one write to a watcher, on average
	unitMemory     = "B/watcher"         // of the delivering server
	unitKernel     = "kernel-B/watcher"  // of both ends of the connection
	unitBuffers    = "buffers-B/watcher" // the same in TCP's buffers
)

// metrics returns the figures of a result without an error.
func (r *result) metrics() []metric {
	if r.idle {
		n := float64(max(r.clients-1, 1))
		return []metric{
			{unitMemory, r.grew[r.peer.name]},
			{unitKernel, float64(r.kernel.Structures) / n}, {unitBuffers, float64(r.kernel.Buffers) / n},
			{"RSS-B", float64(r.RSS[r.peer.name])},
		}
	}
	all := serversCPU(&r.Usage)
	seconds := r.Window.Seconds()
	var m []metric
	if n := float64(r.got.deliveries); n > 0 {
		m = append(m,
			metric{unitCPU, float64(r.CPU[r.peer.name]) / n},
			metric{unitAllCPU, float64(all) / n},
			metric{unitPerCore, n / r.CPU[r.peer.name].Seconds()},
			metric{unitDeliveries, n / seconds},
			metric{unitP50, float64(r.got.latency.Quantile(0.50))},
			metric{"p90-ns", float64(r.got.latency.Quantile(0.90))},
			metric{unitP99, float64(r.got.latency.Quantile(0.99))},
			metric{unitP999, float64(r.got.latency.Quantile(0.999))},
			metric{"p99.99-ns", float64(r.got.latency.Quantile(0.9999))},
			metric{"early-%", 100 * float64(r.got.early) / n},
			metric{"B/delivery", float64(r.got.bytes) / n},
			metric{"RSS-B", float64(r.RSS[r.peer.name])})
		if r.batch > 0 {
			m = append(m, metric{unitBatch, r.batch})
		}
		if r.plain > 0 {
			m = append(m, metric{unitNetCPU, float64(all-r.plain) / n})
		}
		m = append(m, r.own...)
	} else if r.writes > 0 {
		m = append(m, metric{unitWriteCPU, float64(all) / float64(r.writes)})
	}
	m = append(m, metric{unitWrites, float64(r.writes) / seconds}, metric{"late-ns", float64(r.late)})
	return append(m, usageMetrics(&r.Usage)...)
}

// get returns the value of one metric.
func (r *result) get(unit string) (float64, bool) {
	if r.err != nil {
		return 0, false
	}
	return find(r.metrics(), unit)
}

// name is the name of the result's benchmark. It is the same in every round.
func (r *result) name() string {
	who := fmt.Sprintf("peer=%s/tls=%t/clients=%d", r.peer.name, r.peer.tls, r.clients)
	if r.idle {
		return "BenchmarkIdle/" + who
	}
	return fmt.Sprintf("BenchmarkFanout/%s/rate=%v", who, r.rate)
}

// writeBenchmarks writes one line of the Go benchmark format for each result (proposal 14313), for
// benchstat. A failed case has no figures and becomes a comment.
func writeBenchmarks(w io.Writer, results []result) {
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(w, "# %s round %d FAILED: %v\n", r.name(), r.round, r.err)
			continue
		}
		writeBenchmark(w, r.name(), r.metrics())
	}
}
