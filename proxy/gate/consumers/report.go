package consumers

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/watchfan/watchfan/proxy/base/exposition"
)

// Report says what the consumers use. Rates are averages over the last half to whole minute.
type Report struct {
	Time      time.Time `json:"time"`
	Since     time.Time `json:"since"` // of totals, for consumers that have been kept since the start
	Suffers   bool      `json:"suffers"`
	Consumers []Row     `json:"consumers"` // those that cost most first
}

// Row is one consumer.
type Row struct {
	User     string    `json:"user,omitempty"` // only for clients on this host
	Program  string    `json:"program"`
	First    time.Time `json:"first"`
	Clients  float64   `json:"clients"` // an estimate, of those of the last five to ten minutes
	Watches  int       `json:"watches"` // open ones that caches serve
	Requests float64   `json:"requestsPerSecond"`
	Passed   float64   `json:"passedPerSecond"`   // of these to kube-apiserver
	Rejected float64   `json:"rejectedPerSecond"` // of these, because of the budget
	Bytes    float64   `json:"bytesPerSecond"`
	Events   float64   `json:"eventsPerSecond"` // to watches
	CPU      float64   `json:"cpu"`             // in cores
	Alone    float64   `json:"cpuAlone"`        // an estimate of kube-apiserver's without this proxy, in cores
	Budget   float64   `json:"budget"`          // reads a second that may pass; 0 is any number
	Total    Total     `json:"total"`
	Faults   []string  `json:"faults"`
}

// Total is what a consumer has used in all.
type Total struct {
	Requests   uint64  `json:"requests"`
	Passed     uint64  `json:"passed"`
	Bytes      uint64  `json:"bytes"`
	CPUSeconds float64 `json:"cpuSeconds"`
}

// Report returns the most costly consumers, most at most.
func (r *Register) Report(most int) Report {
	r.round(time.Second)
	now := time.Now()
	report := Report{Time: now, Since: r.started, Suffers: r.health.suffers(now), Consumers: []Row{}}
	for _, c := range r.all() {
		if row := c.row(now); row.Total.Requests > 0 || row.Watches > 0 || c.Name == own {
			report.Consumers = append(report.Consumers, row)
		}
	}
	slices.SortStableFunc(report.Consumers, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Total.CPUSeconds, a.Total.CPUSeconds))
	})
	report.Consumers = report.Consumers[:min(most, len(report.Consumers))]
	return report
}

func (c *Consumer) row(now time.Time) Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	then, passed := c.counts.over(now)
	d, seconds, all := c.counts.all.minus(then), max(passed, time.Second).Seconds(), c.counts.all
	return Row{
		User: c.User, Program: c.Program, First: c.first, Watches: c.open,
		Clients:  estimateClients(&c.clients[0], &c.clients[1]),
		Requests: float64(d.Requests) / seconds, Passed: float64(d.Passed) / seconds, Rejected: float64(d.Rejected) / seconds,
		Bytes: float64(d.Bytes) / seconds, Events: float64(d.Events) / seconds,
		CPU: d.CPU / seconds, Alone: d.Alone / seconds, Budget: c.budget.reads,
		Total:  Total{all.Requests, all.Passed, all.Bytes, all.CPU},
		Faults: append([]string{}, c.faultsLocked(now)...),
	}
}

var (
	consumerRequests = exposition.Describe("counter", "watchfan_consumer_requests_total",
		"Requests of a user and program. Only the ten that have cost most have series; watchfan consumers shows the others.")
	consumerPassed = exposition.Describe("counter", "watchfan_consumer_passthrough_requests_total",
		"Requests of a user and program that kube-apiserver has answered. The difference to all is what it has been spared.")
	consumerBytes = exposition.Describe("counter", "watchfan_consumer_bytes_total",
		"Bytes sent to a user and program, compressed if they were sent so.")
	consumerCPU = exposition.Describe("counter", "watchfan_consumer_cpu_seconds_total", "Processor time that a user and "+
		"program have cost, by a model whose sum is the process's. watchfan's own is that of following kube-apiserver.")
)

// mostSeries is how many consumers have series.
const mostSeries = 10

// escaped is a label's value in Prometheus' text format.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// public is the consumer as metrics name it, which more people read than may know who uses a cluster: by name
// only if it is part of it, as service accounts are.
func (n Name) public() Name {
	if !strings.HasPrefix(n.User, "system:") && !strings.HasPrefix(n.User, "(") {
		n.User = "(user)"
	}
	return n
}

// writeMetrics writes the series of the consumers that have cost most. Without names it writes none.
func (r *Register) writeMetrics(w io.Writer) {
	if !r.names {
		return
	}
	r.mu.Lock()
	counts := maps.Clone(r.moved)
	for _, c := range r.kept {
		c.mu.Lock()
		counts[c.public()] = counts[c.public()].plus(c.counts.all)
		c.mu.Unlock()
	}
	for n, c := range counts { // the same numbers in another order may have a sum that is less by a bit
		c.CPU = max(c.CPU, r.shown[n].CPU)
		counts[n] = c
	}
	r.shown = counts
	r.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(counts), func(a, b Name) int {
		return cmp.Or(cmp.Compare(counts[b].CPU, counts[a].CPU), strings.Compare(a.User, b.User), strings.Compare(a.Program, b.Program))
	})
	for _, n := range names[:min(mostSeries, len(names))] {
		c, labels := counts[n], fmt.Sprintf(`{user="%s",program="%s"}`, escaped.Replace(n.User), escaped.Replace(n.Program))
		fmt.Fprintf(w, "%s%s %d\n%s%s %d\n%s%s %d\n%s%s %g\n", consumerRequests, labels, c.Requests, consumerPassed, labels,
			c.Passed, consumerBytes, labels, c.Bytes, consumerCPU, labels, c.CPU)
	}
}
