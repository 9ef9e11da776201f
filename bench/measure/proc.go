package measure

import (
	"fmt"
	"os"
	"strings"
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
// is made from the PID, as in clock_getcpuclockid(3).
func (p Process) CPU() (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED: the scheduler's count, in nanoseconds
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^p.PID<<3|sched), &now); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", p.PID, err)
	}
	return time.Duration(now.Nano()), nil
}

// rss returns the process's resident memory in bytes (proc_pid_statm(5)).
func (p Process) rss() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID))
	if err != nil {
		return 0, err
	}
	var size, resident int64 // pages
	_, err = fmt.Sscan(string(text), &size, &resident)
	return resident * int64(os.Getpagesize()), err
}

// Peak returns the most resident memory in bytes that the process has had (VmHWM in proc_pid_status(5)).
func (p Process) Peak() (peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		return 0, err
	}
	_, line, _ := strings.Cut(string(text), "\nVmHWM:")
	if _, err = fmt.Sscanf(line, "%d kB", &peak); err != nil {
		return 0, fmt.Errorf("no VmHWM in /proc status: the process has ended: %w", err)
	}
	return peak << 10, nil
}

// busy returns the time that all processors were not idle since the machine started. It includes
// the time that the host has stolen.
func busy() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(string(stat))
}

// parseBusy adds up the first line of proc_stat(5), without idle and iowait, and without guests, because
// user contains them.
func parseBusy(stat string) (time.Duration, error) {
	var user, nice, system, idle, iowait, irq, softirq, steal time.Duration
	_, err := fmt.Sscanf(stat, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal)
	if err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return (user + nice + system + irq + softirq + steal) * Tick, nil
}

// costs are the CPU time of processes so far and their memory now.
type costs struct {
	cpu  map[string]time.Duration // by process
	rss  map[string]int64         // by process: resident memory in bytes
	busy time.Duration            // CPU time of the whole machine so far
}

func readCosts(processes []Process) (c costs, err error) {
	c = costs{cpu: make(map[string]time.Duration), rss: make(map[string]int64)}
	for _, p := range processes {
		if c.cpu[p.Name], err = p.CPU(); err == nil {
			c.rss[p.Name], err = p.rss()
		}
		if err != nil {
			return costs{}, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	c.busy, err = busy()
	return c, err
}

// A Meter measures what processes use from a start on.
type Meter struct {
	processes []Process
	start     time.Time
	before    costs
}

func StartMeter(processes []Process) (*Meter, error) {
	before, err := readCosts(processes)
	return &Meter{processes, time.Now(), before}, err
}

// Usage is what processes have used in a window of time.
type Usage struct {
	Window time.Duration
	CPU    map[string]time.Duration // by process
	RSS    map[string]int64         // by process, in bytes, at the end of the window
	Grown  map[string]int64         // by process: the change of its RSS
	Others time.Duration            // CPU time of everything else on the machine
}

// Read returns the usage since the start.
func (m *Meter) Read() (Usage, error) {
	now, err := readCosts(m.processes)
	u := Usage{time.Since(m.start), make(map[string]time.Duration), now.rss, make(map[string]int64), now.busy - m.before.busy}
	for name := range now.cpu {
		u.CPU[name], u.Grown[name] = now.cpu[name]-m.before.cpu[name], now.rss[name]-m.before.rss[name]
		u.Others -= u.CPU[name]
	}
	u.Others = max(u.Others, 0)
	return u, err
}

// Percent returns a CPU time as a percentage of one core over the window.
func (u *Usage) Percent(cpu time.Duration) float64 { return 100 * cpu.Seconds() / u.Window.Seconds() }
