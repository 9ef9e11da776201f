package attack_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// histogram counts durations in buckets that are 4 % wide, from a microsecond on.
type histogram struct {
	buckets map[int]int
	count   int
	longest time.Duration
}

const bucketWidth = 1.04

func (h *histogram) record(d time.Duration) {
	if h.buckets == nil {
		h.buckets = make(map[int]int)
	}
	h.buckets[int(math.Log(max(1, float64(d)/1e3))/math.Log(bucketWidth))]++
	h.count++
	h.longest = max(h.longest, d)
}

// quantile returns the least duration that is not less than a share q of all.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int(math.Ceil(q * float64(h.count)))
	for _, i := range slices.Sorted(maps.Keys(h.buckets)) {
		if rank -= h.buckets[i]; rank <= 0 {
			return min(h.longest, time.Duration(1e3*math.Pow(bucketWidth, float64(i+1))))
		}
	}
	return h.longest
}

// phase is a part of the run, with what honest clients measured in it, in windows of time.
type phase struct {
	name   string
	begun  time.Time
	window time.Duration

	mu       sync.Mutex
	windows  map[string][]*histogram // by kind of operation
	requests map[string]int          // by kind of operation
	faults   map[string]int          // by kind of operation and fault
	example  map[string]string       // the first of each fault
}

func newPhase(name string, window time.Duration) *phase {
	return &phase{name: name, begun: time.Now(), window: window, windows: make(map[string][]*histogram),
		requests: make(map[string]int), faults: make(map[string]int), example: make(map[string]string)}
}

// measured notes an operation that succeeded.
func (p *phase) measured(kind string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[kind]++
	i := int(time.Since(p.begun) / p.window)
	for len(p.windows[kind]) <= i {
		p.windows[kind] = append(p.windows[kind], new(histogram))
	}
	p.windows[kind][i].record(d)
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
	p.mu.Lock()
	defer p.mu.Unlock()
	var s summary
	var p50, p99 []time.Duration
	for _, h := range p.windows[kind] {
		s.count, s.max = s.count+h.count, max(s.max, h.longest)
		if h.count >= enough {
			p50, p99 = append(p50, h.quantile(.5)), append(p99, h.quantile(.99))
		}
	}
	s.p50, s.p99 = median(p50), median(p99)
	return s
}

func (p *phase) kinds() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.windows))
}

// trouble returns the number of operations, the faults among them with their counts, and a text for
// each fault.
func (p *phase) trouble() (operations int, faults map[string]int, text []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.requests {
		operations += n
	}
	for _, key := range slices.Sorted(maps.Keys(p.faults)) {
		text = append(text, fmt.Sprintf("%s phase: %d × %s (%.300s)", p.name, p.faults[key], key, p.example[key]))
	}
	return operations, maps.Clone(p.faults), text
}

func median[T time.Duration | float64](all []T) T {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
