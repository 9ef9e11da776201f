package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
)

// A Metric is one figure of a result, in a unit that benchstat knows: it scales ns, B and /s.
type Metric struct {
	unit  string
	value float64
}

func writeBenchmark(w io.Writer, name string, metrics []Metric) {
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

// Find returns the value of a unit.
func Find(metrics []Metric, unit string) (float64, bool) {
	i := slices.IndexFunc(metrics, func(m Metric) bool { return m.unit == unit })
	if i < 0 {
		return 0, false
	}
	return metrics[i].value, true
}

// ServersCPU returns the CPU time of all servers.
func ServersCPU(u *measure.Usage) (sum time.Duration) {
	for name, cpu := range u.CPU {
		if name != load.Name {
			sum += cpu
		}
	}
	return sum
}

// UsageMetrics are the CPU of each process and of everything else on the machine.
func UsageMetrics(u *measure.Usage) (m []Metric) {
	for _, name := range slices.Sorted(maps.Keys(u.CPU)) {
		m = append(m, Metric{name + "-cpu-%", u.Percent(u.CPU[name])})
	}
	return append(m, Metric{"others-cpu-%", u.Percent(u.Others)})
}

// A Column is one figure of a table.
type Column struct {
	title string
	unit  string
	scale float64 // factor from the metric to the table
}

// summarise returns "median (smallest–largest)", one value alone, or a dash for no value.
func summarise(v []float64, scale float64) string {
	if len(v) == 0 {
		return "–"
	}
	v = slices.Sorted(slices.Values(v))
	format := func(x float64) string { return Human(x * scale) }
	if len(v) == 1 {
		return format(v[0])
	}
	return fmt.Sprintf("%s (%s–%s)", format(median(v)), format(v[0]), format(v[len(v)-1]))
}

func median(v []float64) float64 {
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// Human writes three significant digits, with a comma between thousands.
func Human(v float64) string {
	switch {
	case v < 0:
		return "-" + Human(-v)
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

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// publish writes a report to bench/results, which is there. An empty name publishes nothing.
func publish(name string, report []byte) error {
	if name == "" {
		return nil
	}
	return os.WriteFile(filepath.Join("bench", "results", time.Now().Format(time.DateOnly)+"-"+name+".txt"), report, 0o644)
}

// Clock writes a duration as minutes and seconds.
func Clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// Write prints the conditions, all tables and all benchmark lines, and publishes them under a name.
// err is the reason why they are incomplete, if any. Failed samples are errors, and without samples
// there is no report.
func Write(stdout io.Writer, name string, c Conditions, err error, all []*Section) error {
	failed, cases := 0, 0
	for _, s := range all {
		failed += s.failed()
		cases += len(s.Samples)
	}
	if cases == 0 {
		return err
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d cases failed", failed, cases))
	}
	var text bytes.Buffer
	fmt.Fprintln(&text, strings.Join(c, "\n"))
	if err != nil {
		fmt.Fprintf(&text, "\nINCOMPLETE: %v\n", err)
	}
	fmt.Fprintln(&text)
	var disturbed []float64
	fmt.Fprint(&text, "bench/METHOD.md says what is measured in each row.\n\n")
	for _, s := range all {
		s.WriteTables(&text)
		disturbed = append(disturbed, values(s.Samples, "others-cpu-%")...)
	}
	if len(disturbed) > 0 {
		fmt.Fprintf(&text, "CPU that anything else on this machine used meanwhile: %s %% of a core. "+
			"More than a few spoils the figures.\n", summarise(disturbed, 1))
	}
	fmt.Fprintln(&text)
	for _, s := range all {
		s.writeBenchmarks(&text)
	}
	stdout.Write(text.Bytes())
	return errors.Join(err, publish(name, text.Bytes()))
}

func M(unit string, value float64) Metric { return Metric{unit, value} }

// Q returns a quantile of durations as a metric, in nanoseconds.
func Q(unit string, d *measure.Distribution, q float64) Metric {
	return Metric{unit, float64(d.Quantile(q))}
}

func Col(title, unit string, scale float64) Column { return Column{title, unit, scale} }
