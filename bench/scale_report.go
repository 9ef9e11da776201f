//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
)

// writeScale writes the table, the rows without figures, and the benchmark lines.
func writeScale(w io.Writer, results *section, o *scaleOptions) {
	const title = "Scale: median of rounds (smallest–largest); ratio = watchfan to kube-apiserver in the same round\n" +
		"×: the cost at this number of pods, as a multiple of that at the first. " +
		"CPU is of the answering process, for each request, without the TLS handshake."
	table(w, title, func(row func(...string)) {
		row("row", "figure", "pods", "kube-apiserver", "watchfan", "ratio", "× kube-apiserver", "× watchfan", "target")
		for i := range scaleRows {
			r := &scaleRows[i]
			for _, f := range r.figures {
				for _, cells := range figureRows(results, r, f, o.Pods) {
					row(cells...)
				}
			}
		}
	})
	writeUnmeasured(w, results, o)
	writeDisturbance(w, results.values("others-cpu-%"))
	fmt.Fprintln(w)
	results.writeBenchmarks(w)
}

// figureRows returns the cells of a figure at each number of pods.
func figureRows(results *section, r *scaleRow, f scaleFigure, pods []int) (rows [][]string) {
	var first [2][]float64 // of each peer, at the first number of pods that was measured
	for _, n := range pods {
		cells := []string{r.title, f.title, thousands(n)}
		var growth []string
		var ratio []float64
		measured := false
		for i, p := range []peer{direct, watchfanTLS} {
			rounds := scaleRounds(results, r, n, p)
			v := rounds.values(f.unit)
			if p != direct {
				ratio = results.ratios(rounds.all(), f.unit)
			}
			measured = measured || len(v) > 0
			cells = append(cells, summarise(v, f.scale))
			growth = append(growth, multiple(v, first[i]))
			if len(first[i]) == 0 {
				first[i] = v
			}
		}
		if !measured {
			continue
		}
		cells = append(cells, summarise(ratio, 1))
		rows = append(rows, append(append(cells, growth...), f.target))
	}
	return rows
}

// multiple returns the median of v as a multiple of that of first.
func multiple(v, first []float64) string {
	if len(v) == 0 || len(first) == 0 {
		return "–"
	}
	least := median(slices.Sorted(slices.Values(first)))
	if least == 0 {
		return "–"
	}
	return human(median(slices.Sorted(slices.Values(v))) / least)
}

// scaleRounds returns the rounds of a row at a peer.
func scaleRounds(results *section, r *scaleRow, pods int, p peer) *section {
	rounds := &section{bench: results.bench}
	for _, x := range results.samples {
		if x.peer == p && slices.Equal(x.axes, scaleAxes(r.name, pods)) {
			rounds.add(x)
		}
	}
	return rounds
}

// all returns the samples of a section.
func (s *section) all() (all []*sample) {
	for i := range s.samples {
		all = append(all, &s.samples[i])
	}
	return all
}

// writeUnmeasured says why figures are missing.
func writeUnmeasured(w io.Writer, results *section, o *scaleOptions) {
	for i := range scaleRows {
		r := &scaleRows[i]
		if r.single != "" {
			fmt.Fprintf(w, "%q has no figures of kube-apiserver: %s.\n", r.title, r.single)
		}
	}
	join := rowNamed("join-node")
	for _, n := range o.Pods {
		if v := scaleRounds(results, join, n, direct).values(unitRequestCPU); len(v) > 0 {
			each := median(slices.Sorted(slices.Values(v)))
			fmt.Fprintf(w, "%s joiners by node would take kube-apiserver %s CPU s with %s pods, "+
				"by arithmetic from %s of them. It has not been run.\n",
				thousands(o.Joiners), human(each*float64(o.Joiners)/1e9), thousands(n), thousands(crowdAt(o, direct)))
		}
	}
	for i := range results.samples {
		if x := &results.samples[i]; x.err != nil {
			fmt.Fprintf(w, "FAILED  %s, round %d: %v\n", results.name(x), x.round, x.err)
		}
	}
}
