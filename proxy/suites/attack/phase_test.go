package attack_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// phase is a part of the run, with what honest clients measured in it, in windows of time. It is read when
// all have ended.
type phase struct {
	name   string
	begun  time.Time
	window time.Duration

	mu      sync.Mutex
	took    map[string][][]time.Duration // by kind of operation and window
	faults  map[string]int               // by kind of operation and fault
	example map[string]string            // the first of each fault
}

func newPhase(name string, window time.Duration) *phase {
	return &phase{name: name, begun: time.Now(), window: window, took: make(map[string][][]time.Duration),
		faults: make(map[string]int), example: make(map[string]string)}
}

// measured notes an operation that succeeded.
func (p *phase) measured(kind string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := int(time.Since(p.begun) / p.window)
	for len(p.took[kind]) <= i {
		p.took[kind] = append(p.took[kind], nil)
	}
	p.took[kind][i] = append(p.took[kind][i], d)
}

// failed notes an operation that did not.
func (p *phase) failed(kind, fault, detail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := kind + ": " + fault
	if p.faults[key]++; p.faults[key] == 1 {
		p.example[key] = detail
	}
}

// enough is how many operations a window needs for its 99th percentile to mean something.
const enough = 20

// summary has the measurements of one kind of operation in a phase. Its quantiles are medians over
// the phase's windows, so that one moment in which the machine did something else does not decide.
type summary struct {
	count         int
	p50, p99, max time.Duration
}

func (p *phase) summary(kind string) summary {
	var s summary
	var p50, p99 []time.Duration
	for _, window := range p.took[kind] {
		n := len(window)
		slices.Sort(window)
		if s.count += n; n > 0 {
			s.max = max(s.max, window[n-1])
		}
		if n >= enough {
			p50, p99 = append(p50, window[n/2]), append(p99, window[int(math.Ceil(.99*float64(n)))-1])
		}
	}
	s.p50, s.p99 = median(p50), median(p99)
	return s
}

// fault returns a text for one of the faults.
func (p *phase) fault(key string) string {
	return fmt.Sprintf("%s phase: %d × %s (%.300s)", p.name, p.faults[key], key, p.example[key])
}

func median[T time.Duration | float64](all []T) T {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
