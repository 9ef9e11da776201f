//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// conditions are what a figure cannot be judged without, as `key: value` lines of the Go benchmark
// format.
type conditions []string

func newConditions(o *Options) conditions {
	c := machineConditions()
	c.add("event-bytes", fmt.Sprint(o.EventSize))
	c.add("objects", fmt.Sprint(o.Objects))
	c.add("writers", fmt.Sprint(o.Writers))
	c.add("behind", fmt.Sprint(o.Behind))
	c.add("watchfan-behind", fmt.Sprint(o.OwnBehind))
	c.add("readers", fmt.Sprint(o.Readers))
	c.add("mixed-selectors", fmt.Sprint(o.Mixed))
	c.add("window", o.Window.String())
	c.add("rounds", fmt.Sprint(o.Rounds))
	c.add("parts", strings.Join(o.Parts, ","))
	c.add("section-rounds", fmt.Sprint(o.SectionRounds))
	c.add("flush-interval", o.FlushInterval.String())
	c.add("offer", fmt.Sprint(o.Offer))
	c.add("stalled-bound", fmt.Sprint(o.StalledBound))
	c.add("pods", fmt.Sprint(o.Pods))
	c.add("open-files", fmt.Sprint(roomFor()+otherFiles))
	return c
}

// machineConditions are those that do not depend on what is measured.
func machineConditions() conditions {
	var c conditions
	c.add("date", time.Now().UTC().Format(time.RFC3339))
	c.add("commit", commit())
	c.add("command", "bench "+strings.Join(os.Args[1:], " "))
	c.add("goos", runtime.GOOS)
	c.add("goarch", runtime.GOARCH)
	c.add("pkg", "github.com/watchfan/watchfan/bench")
	c.add("cpu", field("/proc/cpuinfo", "model name"))
	c.add("cores", fmt.Sprint(runtime.NumCPU()))
	c.add("memory", field("/proc/meminfo", "MemTotal"))
	c.add("kernel", firstLine("/proc/sys/kernel/osrelease"))
	c.add("go", runtime.Version())
	return c
}

func (c *conditions) add(key, value string) {
	if value == "" {
		value = "unknown"
	}
	*c = append(*c, key+": "+value)
}

func (c conditions) write(w io.Writer) {
	for _, line := range c {
		fmt.Fprintln(w, line)
	}
}

// commit says what was built: the revision stamped into the binary, or for `go run`, which stamps
// none, git's answer.
func commit() string {
	revision, dirty := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(len(s.Value), 12)]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "-dirty"
			}
		}
	}
	if revision != "" {
		return revision + dirty
	}
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(out))
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

func firstLine(path string) string {
	data, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}
