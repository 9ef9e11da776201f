package attack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
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

// startFallback starts a node's fall-back in a container of its own, while the node's cache is away. home starts
// the cache in another, at the same port.
func startFallback(t *testing.T, w *world) (s *server, home func()) {
	t.Helper()
	port, admin := proxytest.ReservedPort(t), proxytest.ReservedPort(t)
	s = startContained(t, w, fallbackLimit, "--fallback-for=http://127.0.0.1:"+admin+"/readyz", "--secure-port="+port,
		"--insecure-port=0")
	return s, func() {
		startContained(t, w, nodeLimit, append([]string{"--permit-port-sharing", "--secure-port=" + port, "--admin-port=" + admin,
			"--insecure-port=0"}, onNodes...)...)
	}
}

// awaitCache waits until a new connection reaches a cache.
func (s *server) awaitCache(t *testing.T, w *world) {
	t.Helper()
	user := w.honest[0]
	steady.Until(t, "answer from a cache over a new connection", func() error {
		c := newClient(s.way(user))
		defer c.close()
		code, header, _, err := c.send(t.Context(), request{method: "GET", uri: "/api/v1/namespaces/" + user.tenant + "/configmaps?resourceVersion=0"})
		if err == nil && !proxytest.FromCache(header) {
			err = fmt.Errorf("%d", code)
		}
		return err
	})
}
