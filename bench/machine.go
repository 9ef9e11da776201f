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
	"syscall"
	"time"
)

// conditions are the machine and the settings of a run, as `key: value` lines of the Go benchmark
// format.
type conditions []string

// machineConditions returns the conditions that all commands share.
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

// commit returns the revision that is stamped into the binary. `go run` stamps none: then git
// answers.
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

// otherFiles is the number of open files that a process needs beside its connections.
const otherFiles = 256

// roomFor returns the number of connections that this process and each of its servers may have.
func roomFor() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Max, 1<<30)) - otherFiles
}

// raiseFileLimit makes room for n connections here and in the servers, which inherit the limit.
func raiseFileLimit(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	need := uint64(n + otherFiles)
	if limit.Max < need {
		return fmt.Errorf("%d watchers need %d open files, and this process may have %d: "+
			"raise the hard limit (ulimit -Hn) first", n, need, limit.Max)
	}
	limit.Cur = limit.Max
	return os.NewSyscallError("setrlimit", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
}
