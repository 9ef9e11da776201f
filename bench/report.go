//go:build linux

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A metric is one figure of a result, in a unit that benchstat knows: it scales ns, B and /s.
type metric struct {
	unit  string
	value float64
}

func writeBenchmark(w io.Writer, name string, metrics []metric) {
	fmt.Fprintf(w, "%s-%d\t1", name, runtime.NumCPU())
	for _, m := range metrics {
		fmt.Fprintf(w, "\t%s %s", strconv.FormatFloat(m.value, 'f', decimals(m.value), 64), m.unit)
	}
	fmt.Fprintln(w)
}

// decimals returns the number of decimals for about four significant digits.
func decimals(v float64) int {
	switch {
	case v == 0 || v >= 1000 || v <= -1000:
		return 0
	case v >= 100:
		return 1
	case v >= 10:
		return 2
	default:
		return 4
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	var keys []K
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// find returns the value of a unit.
func find(metrics []metric, unit string) (float64, bool) {
	i := slices.IndexFunc(metrics, func(m metric) bool { return m.unit == unit })
	if i < 0 {
		return 0, false
	}
	return metrics[i].value, true
}

// ownName is the name of this program among the processes, and its User-Agent.
const ownName = "bench"

func ownProcess() measure.Process { return measure.Process{Name: ownName, PID: os.Getpid()} }

// withBench returns the servers of a stage and this program.
func withBench(st *stage) []measure.Process {
	return append([]measure.Process{ownProcess()}, st.processes()...)
}

// serversCPU returns the CPU time of all servers.
func serversCPU(u *measure.Usage) (sum time.Duration) {
	for name, cpu := range u.CPU {
		if name != ownName {
			sum += cpu
		}
	}
	return sum
}

// usageMetrics are the CPU of each process and of everything else on the machine.
func usageMetrics(u *measure.Usage) (m []metric) {
	for _, name := range sortedKeys(u.CPU) {
		m = append(m, metric{name + "-cpu-%", u.Percent(u.CPU[name])})
	}
	return append(m, metric{"others-cpu-%", u.Percent(u.Others)})
}

func milliseconds(d time.Duration) string { return human(float64(d)/1e6) + " ms" }

// A column is one figure of a table.
type column struct {
	title string
	unit  string
	scale float64 // factor from the metric to the table
}

// writeDisturbance writes the CPU that everything else on the machine used, in percent of a core.
func writeDisturbance(w io.Writer, percent []float64) {
	if len(percent) > 0 {
		fmt.Fprintf(w, "CPU that anything else on this machine used meanwhile: %s %% of a core. "+
			"More than a few spoils the figures.\n", summarise(percent, 1))
	}
}

// table writes an aligned table, or nothing if there is only a header.
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

// summarise returns "median (smallest–largest)", one value alone, or a dash for no value.
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

// human writes three significant digits, with a comma between thousands.
func human(v float64) string {
	switch {
	case v < 0:
		return "-" + human(-v)
	case v >= 1000:
		return thousands(int(math.Round(v)))
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

// thousands writes a number with a comma between thousands.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// report prints the conditions and the figures of a run, and publishes them under a name. It
// returns err, the reason why the figures are incomplete, if any.
func report(stdout io.Writer, name string, c conditions, err error, figures func(io.Writer)) error {
	var text bytes.Buffer
	c.write(&text)
	if err != nil {
		fmt.Fprintf(&text, "\nINCOMPLETE: %v\n", err)
	}
	fmt.Fprintln(&text)
	figures(&text)
	stdout.Write(text.Bytes())
	return errors.Join(err, publish(name, text.Bytes()))
}

// publish writes a report to bench/results. An empty name publishes nothing.
func publish(name string, report []byte) error {
	if name == "" {
		return nil
	}
	dir := filepath.Join("bench", "results")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, time.Now().Format(time.DateOnly)+"-"+name+".txt"), report, 0o644)
}

// clock writes a duration as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
