package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestForbidCores: a process that dies leaves no core file, even if GOTRACEBACK=crash asks for one.
func TestForbidCores(t *testing.T) {
	if os.Getenv("TEST_FORBID_CORES") != "" { // the process
		var limit unix.Rlimit
		if err := errors.Join(forbidCores(), unix.Getrlimit(unix.RLIMIT_CORE, &limit)); err != nil ||
			limit.Cur > 1 || limit.Max > 1 {
			t.Fatalf("limits %d and %d, %v", limit.Cur, limit.Max, err)
		}
		_ = unix.Kill(os.Getpid(), unix.SIGABRT)
		select {}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestForbidCores$")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOTRACEBACK=crash", "TEST_FORBID_CORES=yes")
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGABRT {
		t.Fatalf("the process has not died of SIGABRT: %v\n%s", err, output)
	}
	cores, err := filepath.Glob(filepath.Join(cmd.Dir, "*"))
	if err != nil || len(cores) > 0 || exit.Sys().(syscall.WaitStatus).CoreDump() {
		t.Errorf("a core was dumped: %v, %v", cores, err)
	}
}
