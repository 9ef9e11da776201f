//go:build linux

package main

import (
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A meter says what processes use from its start on.
type meter struct {
	processes []measure.Process
	start     time.Time
	before    measure.Costs
}

func startMeter(processes []measure.Process) (*meter, error) {
	before, err := measure.ReadCosts(processes)
	return &meter{processes, time.Now(), before}, err
}

// A spending is what processes have used in a window of time.
type spending struct {
	window time.Duration
	cpu    map[string]time.Duration // by process
	rss    map[string]int64         // by process, at the end
	others time.Duration            // CPU time of everything else on the machine
}

// read returns what has been used so far.
func (m *meter) read() (spending, error) {
	after, err := measure.ReadCosts(m.processes)
	return spending{time.Since(m.start), after.CPUSince(m.before), after.RSS, after.OthersSince(m.before)}, err
}

// servers returns the CPU time of all servers.
func (u *spending) servers() (sum time.Duration) {
	for name, cpu := range u.cpu {
		if name != "bench" {
			sum += cpu
		}
	}
	return sum
}

// metrics are the use of each process, as every report has them.
func (u *spending) metrics() (m []metric) {
	for _, name := range sortedKeys(u.cpu) {
		m = append(m, metric{name + "-cpu-%", 100 * u.cpu[name].Seconds() / u.window.Seconds()})
	}
	return append(m, metric{"others-cpu-%", 100 * u.others.Seconds() / u.window.Seconds()})
}
