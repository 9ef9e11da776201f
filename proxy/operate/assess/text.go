package assess

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// mostShown is how many resources the table has.
const mostShown = 20

// writeText writes a as people read it.
func (a *Assessment) writeText(w io.Writer) {
	fmt.Fprintf(w, "%s, kube-apiserver %s, %s s, with %d replicas of watchfan\n\n%s\n",
		a.Server, a.Version, number(a.Seconds), a.Replicas, sentences[a.Verdict])
	for _, reason := range a.Reasons {
		fmt.Fprintf(w, "  - %s\n", reason)
	}
	if names := a.profit(); len(names) > 0 {
		fmt.Fprintf(w, "  - the clients of %s profit most\n", strings.Join(names, ", "))
	}
	fmt.Fprintln(w)
	a.writeResources(w)
	a.writeCosts(w)
	if a.WhatIf != nil {
		a.WhatIf.writeText(w)
	}
	for _, m := range a.Missing {
		fmt.Fprintf(w, "Missing: %s\n", m)
	}
	fmt.Fprint(w, notes)
}

// profit returns the resources whose move saves most.
func (a *Assessment) profit() (names []string) {
	for _, r := range a.Resources {
		if len(names) < mostProfit && r.SavedCPU.Mid >= leastCPU {
			names = append(names, r.name())
		}
	}
	return names
}

func (r *Resource) name() string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

func (a *Assessment) writeResources(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "watches\tevents/s\tdeliveries/s\tbytes/s\tobjects at starts/s\t"+
		"watches left\tdeliveries/s left\tcores saved\t  resource")
	line := func(r *Resource, name string) {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n",
			number(r.Watches), number(r.Events), number(r.Deliveries), size(r.Bytes), number(r.Objects),
			number(r.WatchesLeft), number(r.DeliveriesLeft), number(r.SavedCPU.Mid), name)
	}
	for i := range a.Resources[:min(len(a.Resources), mostShown)] {
		line(&a.Resources[i], a.Resources[i].name())
	}
	name := "total"
	if more := len(a.Resources) - mostShown; more > 0 {
		name = fmt.Sprintf("total, with %d more", more)
	}
	line(&a.Total, name)
	_ = table.Flush() // an error of w comes back from the next write
	fmt.Fprintln(w)
}

func (a *Assessment) writeCosts(w io.Writer) {
	s, t := &a.APIServer, &a.Tier
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(what, cpu, memory string) { fmt.Fprintf(table, "%s\t%s\t%s\n", what, cpu, memory) }
	line("", "cores", "memory")
	line("kube-apiserver now, measured", number(s.CPU), size(s.Memory))
	line("  its watches and starts", spread(s.WatchCPU, number), spread(s.WatchMemory, size))
	line("  the same with watchfan", spread(s.WatchCPULeft, number), spread(s.WatchMemoryLeft, size))
	line("  reviews of open watches, new", spread(s.Reviews, number), "")
	line(fmt.Sprintf("watchfan, %d replicas together", a.Replicas), spread(t.CPU, number), spread(t.Memory, size))
	_ = table.Flush()
	fmt.Fprintln(w)
}

const notes = `Estimates are medians with their spread, from bench/README.md: 2 cores of an AMD EPYC, over TLS.
They assume that all clients of a resource move. The metrics tell neither clients nor their selectors apart.
kube-apiserver's own watches are counted too, and stay. Objects at starts are counted before selectors.
If there are several kube-apiservers, these figures are of the one that has answered.
`

func spread(r Range, show func(float64) string) string {
	return fmt.Sprintf("%s (%s–%s)", show(r.Mid), show(r.Low), show(r.High))
}

// number writes a number with two or three digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 0.001:
		return "<0.001"
	case a < 1:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case a < 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a < 1e4:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a < 1e7:
		return strconv.FormatFloat(v/1e3, 'f', 0, 64) + "k"
	}
	return strconv.FormatFloat(v/1e6, 'f', 0, 64) + "M"
}

// size writes a number of bytes.
func size(v float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if v < 10 && i > 0 {
		return fmt.Sprintf("%.1f %s", v, units[i])
	}
	return fmt.Sprintf("%.0f %s", v, units[i])
}
