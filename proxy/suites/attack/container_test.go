package attack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// memoryGroups are where control groups for memory are made, with the names of their files, in versions 1
// and 2.
var memoryGroups = []struct{ at, limit, kills string }{
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"},
	{"/sys/fs/cgroup", "memory.max", "memory.events"},
}

// newMemoryGroup makes a control group for the test. It skips the test where the machine does not permit
// that.
func newMemoryGroup(t *testing.T, limit int64) (dir string, kills func() string) {
	t.Helper()
	var errs []error
	for _, g := range memoryGroups {
		dir := filepath.Join(g.at, fmt.Sprintf("watchfan-attack-%d-%d", os.Getpid(), limit))
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			t.Cleanup(func() { _ = os.Remove(dir) })
			err = os.WriteFile(filepath.Join(dir, g.limit), []byte(strconv.FormatInt(limit, 10)), 0o600)
		}
		if err == nil {
			return dir, func() string {
				text, err := os.ReadFile(filepath.Join(dir, g.kills))
				for line := range strings.Lines(string(text)) {
					if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
						return strings.TrimSpace(n)
					}
				}
				return fmt.Sprint("unknown: ", err)
			}
		}
		errs = append(errs, err)
	}
	t.Skipf("no control group can be made here: %v", errs)
	return "", nil
}

// startContained starts a watchfan in a control group with a memory limit, as a container runtime does.
// watchfan finds the limit itself. The kernel may not have to end it.
func startContained(t *testing.T, w *world, limit int64, args ...string) *server {
	t.Helper()
	dir, kills := newMemoryGroup(t, limit)
	script := filepath.Join(t.TempDir(), "watchfan")
	text := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs && exec %s \"$@\"\n", dir,
		proxytest.Binary(t, "WATCHFAN_BIN", "watchfan", "attack"))
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	s := startProgram(t, w, script, args...)
	t.Cleanup(func() {
		if n := kills(); n != "0" {
			t.Errorf("the kernel has ended processes of the container: %s", n)
		}
	})
	return s
}
