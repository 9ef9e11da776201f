package attack_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// verdict is the outcome of a run.
type verdict struct {
	strict                      bool
	quiet, attacked             *phase
	quietLevels, attackedLevels []level
	after                       level    // once the attackers had left
	attacks                     []string // the kinds that should have happened
	ledger                      *ledger
	violations                  []string
	returned                    error // why the server did not return to the quiet level
	settled                     error // which watcher did not receive everything
	stopped                     error // what was wrong with the server's end and its log
}

// Bounds of latencies under attack, as a multiple of those in the quiet phase. The loose bound is
// for short runs on a busy machine and notices stalls of seconds. It takes quiet percentiles below
// looseLeast for that, and it allows what also delays kube-apiserver.
const (
	strictRatio = 3
	looseRatio  = 30
	looseLeast  = 20 * time.Millisecond
	looseUpdate = 3 // as a multiple of the steady writer's updates, which go straight to kube-apiserver
)

// Bounds of memory in the second half of the attack, as a multiple of the first half and an amount
// on top. A short run is still beginning to use memory.
const (
	memoryGrowth      = 1.2
	memorySpare       = 32 << 20
	looseMemoryGrowth = 3
	looseMemorySpare  = 512 << 20
)

// mostFaults is the share of honest operations that may be answered 429 with a Retry-After, and are
// then sent again. Any other fault that the quiet phase has not seen fails the run.
const mostFaults = .001

// wrong returns each reason why the run has failed.
func (v *verdict) wrong() []string {
	wrong := slices.Clone(v.violations)
	if len(wrong) > 20 {
		wrong = append(wrong[:20], fmt.Sprintf("and %d more", len(v.violations)-20))
	}
	for _, err := range []error{v.returned, v.settled, v.stopped} {
		if err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	wrong = append(wrong, v.ledger.wrong(v.attacks)...)
	wrong = append(wrong, v.slow()...)
	wrong = append(wrong, v.growing()...)
	return append(wrong, v.faulty()...)
}

// slow returns the operations that became too slow.
func (v *verdict) slow() (wrong []string) {
	for _, kind := range cachedOperations {
		quiet, attacked := v.quiet.summary(kind), v.attacked.summary(kind)
		if quiet.p99 == 0 || attacked.p99 == 0 {
			wrong = append(wrong, kind+": too few operations to say anything")
			continue
		}
		bound := strictRatio * quiet.p99
		if !v.strict {
			bound = max(looseRatio*max(quiet.p99, looseLeast), looseUpdate*v.attacked.summary(updateOperation).p99)
		}
		if attacked.p99 > bound {
			wrong = append(wrong, fmt.Sprintf("%s: p99 under attack is %s, above %s; in the quiet phase it is %s", kind,
				attacked.p99, bound, quiet.p99))
		}
	}
	return wrong
}

// growing returns the kinds of memory that grow.
func (v *verdict) growing() (wrong []string) {
	growth, spare := memoryGrowth, float64(memorySpare)
	if !v.strict {
		growth, spare = looseMemoryGrowth, looseMemorySpare
	}
	half := len(v.attackedLevels) / 2
	if half < 2 {
		return []string{"too few samples of the server's memory"}
	}
	before, behind := medians(v.attackedLevels[:half]), medians(v.attackedLevels[half:])
	for _, name := range []string{"resident", "heap"} {
		if behind[name] > growth*before[name]+spare {
			wrong = append(wrong, fmt.Sprintf("%s memory grows from %.0f MB in the first half of the attack to %.0f MB in the second", name,
				before[name]/1e6, behind[name]/1e6))
		}
	}
	return wrong
}

// faulty returns the faults of honest operations under attack that the quiet phase did not have.
// Faults of writes straight to kube-apiserver are not the server's.
func (v *verdict) faulty() (wrong []string) {
	operations := 0
	for _, windows := range v.attacked.took {
		operations += len(slices.Concat(windows...))
	}
	for _, key := range slices.Sorted(maps.Keys(v.attacked.faults)) {
		most := float64(v.quiet.faults[key])
		if strings.HasSuffix(key, ": 429") {
			most += max(3, mostFaults*float64(operations))
		}
		if float64(v.attacked.faults[key]) > most && !strings.HasPrefix(key, updateOperation) {
			wrong = append(wrong, v.attacked.fault(key))
		}
	}
	return wrong
}

// report returns a table of the measurements.
func (v *verdict) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-26s %9s %9s %9s %9s | %9s %9s %9s %9s | %s\n", "honest operations", "quiet", "p50", "p99", "max",
		"attack", "p50", "p99", "max", "p99 ratio")
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	for _, kind := range slices.Sorted(maps.Keys(v.attacked.took)) {
		q, a := v.quiet.summary(kind), v.attacked.summary(kind)
		ratio := "-"
		if q.p99 > 0 {
			ratio = fmt.Sprintf("%.1f", ms(a.p99)/ms(q.p99))
		}
		fmt.Fprintf(&b, "%-26s %9d %7.2fms %7.2fms %7.2fms | %9d %7.2fms %7.2fms %7.2fms | %s\n", kind, q.count, ms(q.p50), ms(q.p99), ms(q.max),
			a.count, ms(a.p50), ms(a.p99), ms(a.max), ratio)
	}
	for _, p := range []*phase{v.quiet, v.attacked} {
		for _, key := range slices.Sorted(maps.Keys(p.faults)) {
			fmt.Fprintln(&b, p.fault(key))
		}
	}
	half := len(v.attackedLevels) / 2
	for i, levels := range [][]level{v.quietLevels, v.attackedLevels[:half], v.attackedLevels[half:]} {
		if n := len(levels); n > 1 {
			computed := func(name string) float64 {
				return (levels[n-1][name] - levels[0][name]) / (levels[n-1]["at"] - levels[0]["at"])
			}
			fmt.Fprintf(&b, "%-20s %s, %.2f processors, kube-apiserver %.2f\n", []string{"quiet", "attack, first half", "attack, second half"}[i],
				medians(levels), computed("cpu"), computed("apiserver"))
		}
	}
	fmt.Fprintf(&b, "%-20s %s\nattacks:\n%s", "after the attack", v.after, v.ledger)
	return b.String()
}
