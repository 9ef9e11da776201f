//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A metric is one figure of a result, in a unit that benchstat understands: ns, B and /s are scaled
// by it.
type metric struct {
	unit  string
	value float64
}

// Units that the tables ask for by name.
const (
	unitCPU        = "cpu-ns/delivery"     // of the server that delivers
	unitAllCPU     = "all-cpu-ns/delivery" // of all servers
	unitNetCPU     = "net-cpu-ns/delivery" // of all servers, less what the same writes cost without a watcher
	unitWriteCPU   = "all-cpu-ns/write"    // of all servers, with no watcher
	unitDeliveries = "deliveries/s"
	unitWrites     = "writes/s"
	unitP50        = "p50-ns"
	unitP99        = "p99-ns"
	unitP999       = "p99.9-ns"
	unitPerCore    = "deliveries/core-s" // for a second of one core that the server that delivers uses
	unitBatch      = "events/write"      // in one write to a watcher, on average
	unitMemory     = "B/watcher"         // of the server that delivers
	unitKernel     = "kernel-B/watcher"  // of both ends of the connection
	unitBuffers    = "buffers-B/watcher" // the same in TCP's buffers
)

// metrics returns the figures of a result that has no error.
func (r *result) metrics() []metric {
	if r.idle {
		n := float64(max(r.clients-1, 1))
		return []metric{
			{unitMemory, r.grew[r.peer.name]}, {unitKernel, float64(r.kernel.Structures) / n}, {unitBuffers, float64(r.kernel.Buffers) / n},
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
			metric{unitP99, float64(r.got.latency.Quantile(0.99))},
			metric{unitP999, float64(r.got.latency.Quantile(0.999))},
			metric{"early-%", 100 * float64(r.got.early) / n},
			metric{"B/delivery", float64(r.got.bytes) / n},
			metric{"RSS-B", float64(r.RSS[r.peer.name])})
		if r.batch > 0 {
			m = append(m, metric{unitBatch, r.batch})
		}
		if r.plain > 0 {
			m = append(m, metric{unitNetCPU, float64(all-r.plain) / n})
		}
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

// name is the result's benchmark: the same in every round.
func (r *result) name() string {
	who := fmt.Sprintf("peer=%s/tls=%t/clients=%d", r.peer.name, r.peer.tls, r.clients)
	if r.idle {
		return "BenchmarkIdle/" + who
	}
	return fmt.Sprintf("BenchmarkFanout/%s/rate=%v", who, r.rate)
}

// writeBenchmarks writes one line of the Go benchmark format for each result (proposal 14313),
// which benchstat turns into medians, spreads and comparisons. A case that failed is a comment: it
// has no figures.
func writeBenchmarks(w io.Writer, results []result) {
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(w, "# %s round %d FAILED: %v\n", r.name(), r.round, r.err)
			continue
		}
		writeBenchmark(w, r.name(), r.metrics())
	}
}

func writeBenchmark(w io.Writer, name string, metrics []metric) {
	fmt.Fprintf(w, "%s-%d\t1", name, runtime.NumCPU())
	for _, m := range metrics {
		fmt.Fprintf(w, "\t%s %s", strconv.FormatFloat(m.value, 'f', decimals(m.value), 64), m.unit)
	}
	fmt.Fprintln(w)
}

// decimals keeps four significant digits.
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

// ownName is the name of this program among the processes.
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
