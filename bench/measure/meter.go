//go:build linux

package measure

import "time"

// A Meter measures what processes use from a start on.
type Meter struct {
	processes []Process
	start     time.Time
	before    Costs
}

// StartMeter returns a meter that starts now.
func StartMeter(processes []Process) (*Meter, error) {
	before, err := ReadCosts(processes)
	return &Meter{processes, time.Now(), before}, err
}

// Usage is what processes have used in a window of time.
type Usage struct {
	Window time.Duration
	CPU    map[string]time.Duration // by process
	RSS    map[string]int64         // by process, in bytes, at the end of the window
	Others time.Duration            // CPU time of everything else on the machine
}

// Read returns the usage since the start.
func (m *Meter) Read() (Usage, error) {
	u, _, err := m.read()
	return u, err
}

// Lap returns the usage since the start, and starts again.
func (m *Meter) Lap() (Usage, error) {
	u, now, err := m.read()
	m.start, m.before = m.start.Add(u.Window), now
	return u, err
}

func (m *Meter) read() (Usage, Costs, error) {
	now, err := ReadCosts(m.processes)
	return Usage{time.Since(m.start), now.CPUSince(m.before), now.RSS, now.OthersSince(m.before)}, now, err
}

// Percent returns a CPU time as a percentage of one core over the window.
func (u *Usage) Percent(cpu time.Duration) float64 { return 100 * cpu.Seconds() / u.Window.Seconds() }
