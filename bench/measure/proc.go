//go:build linux

package measure

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is a process to measure.
type Process struct {
	Name string
	PID  int
}

// Tick is the unit of times in /proc/stat: USER_HZ is 100 on every Linux that Go runs on.
const Tick = time.Second / 100

// CPU returns the user and system time of the process, from its CPU clock. The number of that clock
// is made from the PID, as in clock_getcpuclockid(3). /proc/PID/stat has the same in steps of 10
// ms.
func (p Process) CPU() (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED: the scheduler's count, in nanoseconds
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^p.PID<<3|sched), &now); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", p.PID, err)
	}
	return time.Duration(now.Nano()), nil
}

// rss returns the process's resident memory in bytes.
func (p Process) rss() (int64, error) { return p.memory("VmRSS") }

// Peak returns the most resident memory in bytes that the process has had.
func (p Process) Peak() (int64, error) { return p.memory("VmHWM") }

func (p Process) memory(field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return 0, err
	}
	return parseMemory(status, field)
}

// parseMemory finds "VmRSS:	   12345 kB" in proc_pid_status(5).
func parseMemory(status []byte, field string) (int64, error) {
	_, rest, ok := bytes.Cut(status, []byte("\n"+field+":"))
	if !ok {
		return 0, fmt.Errorf("no %s in /proc status: the process has ended", field)
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) != 2 || string(fields[1]) != "kB" {
		return 0, fmt.Errorf("%s of /proc status: %q", field, line)
	}
	n, err := strconv.ParseInt(string(fields[0]), 10, 50)
	return n << 10, err
}

// busy returns the time that all processors were not idle since the machine started. It includes
// the time that the host has stolen.
func busy() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(stat)
}

// parseBusy adds up the first line of proc_stat(5), "cpu  user nice system idle iowait irq softirq
// steal guest …", without idle and iowait, and without guests, because user contains them.
func parseBusy(stat []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, fmt.Errorf("/proc/stat: %.60q", line)
	}
	var ticks uint64
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseUint(string(fields[i]), 10, 63)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * Tick, nil
}

// Costs are the CPU time of processes so far and their memory now.
type Costs struct {
	cpu  map[string]time.Duration // by process
	RSS  map[string]int64         // by process: resident memory in bytes
	busy time.Duration            // CPU time of the whole machine so far
}

// ReadCosts returns the costs of processes now.
func ReadCosts(processes []Process) (Costs, error) {
	c := Costs{cpu: make(map[string]time.Duration), RSS: make(map[string]int64)}
	for _, p := range processes {
		cpu, err := p.CPU()
		if err != nil {
			return Costs{}, fmt.Errorf("%s: %w", p.Name, err)
		}
		rss, err := p.rss()
		if err != nil {
			return Costs{}, fmt.Errorf("%s: %w", p.Name, err)
		}
		c.cpu[p.Name], c.RSS[p.Name] = cpu, rss
	}
	var err error
	c.busy, err = busy()
	return c, err
}

// CPUSince returns the CPU time of each process between an earlier reading and c.
func (c Costs) CPUSince(earlier Costs) map[string]time.Duration {
	used := make(map[string]time.Duration)
	for name, cpu := range c.cpu {
		used[name] = cpu - earlier.cpu[name]
	}
	return used
}

// OthersSince returns the CPU time of everything else on the machine between an earlier reading and
// c.
func (c Costs) OthersSince(earlier Costs) time.Duration {
	others := c.busy - earlier.busy
	for _, cpu := range c.CPUSince(earlier) {
		others -= cpu
	}
	return max(others, 0)
}

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
