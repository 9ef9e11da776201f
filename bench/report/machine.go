package report

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/load"
)

// Conditions are the machine and the settings of a run, as `key: value` lines of the Go benchmark
// format.
type Conditions []string

// MachineConditions returns the conditions that all commands share.
func MachineConditions() Conditions {
	var c Conditions
	c.Add("date", time.Now().UTC().Format(time.RFC3339))
	c.Add("commit", commit())
	c.Add("command", "bench "+strings.Join(os.Args[1:], " "))
	c.Add("goos", runtime.GOOS)
	c.Add("goarch", runtime.GOARCH)
	c.Add("pkg", "github.com/watchfan/watchfan/bench")
	c.Add("cpu", field("/proc/cpuinfo", "model name"))
	c.Add("cores", fmt.Sprint(runtime.NumCPU()))
	c.Add("memory", field("/proc/meminfo", "MemTotal"))
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	c.Add("kernel", string(bytes.TrimSpace(release)))
	c.Add("go", runtime.Version())
	c.Add("open-files", fmt.Sprint(load.RoomFor()+load.OtherFiles))
	return c
}

func (c *Conditions) Add(key, value string) {
	*c = append(*c, key+": "+cmp.Or(value, "unknown"))
}

// commit returns the revision that is stamped into the binary.
func commit() (revision string) {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			revision += "-dirty"
		}
	}
	return revision
}

// field returns the value of the first "name : value" line of a file.
func field(path, name string) string {
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
