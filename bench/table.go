//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A column is one figure of the table: how to find and to print it.
type column struct {
	title string
	unit  string
	scale float64 // what to multiply the unit with
}

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

// writeTrafficTable writes a row for each case with traffic: a cell for each column, and a remark if
// about is not nil.
func writeTrafficTable(w io.Writer, title string, cases [][]result, cell func([]result, column) string, about func([]result) string) {
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
	const title = "Above the floor: divided by what one writev for the same events takes, at the same rate in the same round"
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

// writeDisturbance writes what percentages of a core everything else on the machine used.
func writeDisturbance(w io.Writer, percent []float64) {
	if len(percent) > 0 {
		fmt.Fprintf(w, "CPU that anything else on this machine used meanwhile: %s %% of a core. More than a few spoils the figures.\n", summarise(percent, 1))
	}
}

// table writes an aligned table, or nothing if there is no row beneath its header.
func table(w io.Writer, title string, fill func(row func(...string))) {
	var text strings.Builder
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	rows := 0
	fill(func(cells ...string) {
		rows++
		fmt.Fprintln(tw, "  "+strings.Join(cells, "\t"))
	})
	if tw.Flush(); rows > 1 {
		fmt.Fprintf(w, "%s\n%s\n", title, text.String())
	}
}

// group collects the rounds of each case, in the order in which cases were first measured.
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

// ratios compares each round of a case with kube-apiserver's in the same round.
func ratios(rounds, results []result, unit string) []float64 {
	return ratiosTo(direct, rounds, results, unit)
}

// ratiosTo compares each round of a case with another peer's in the same round.
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

// twins are another peer's results in the same case and the same rounds.
func twins(p peer, rounds, results []result) (all []result) {
	for _, r := range rounds {
		for _, twin := range results {
			if twin.peer == p && twin.idle == r.idle && twin.round == r.round && twin.clients == r.clients && twin.rate == r.rate {
				all = append(all, twin)
			}
		}
	}
	return all
}

// summarise returns "median (smallest–largest)", the median alone if there is one value, or a dash.
func summarise(v []float64, scale float64) string {
	if len(v) == 0 {
		return "–"
	}
	v = slices.Sorted(slices.Values(v))
	format := func(x float64) string { return human(x * scale) }
	if len(v) == 1 {
		return format(v[0])
	}
	return fmt.Sprintf("%s (%s–%s)", format(median(v)), format(v[0]), format(v[len(v)-1]))
}

// median of sorted values.
func median(v []float64) float64 {
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// human writes three significant digits, and thousands apart.
func human(v float64) string {
	switch {
	case v < 0:
		return "-" + human(-v)
	case v >= 1000:
		s := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.1 || v == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

// failures says how many of a case's rounds have no figures.
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
