package server

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPriority: the priority is the child's alone. This program and its later children do not have
// it.
func TestPriority(t *testing.T) {
	f := func(p Priority, want uint32) {
		t.Helper()
		c, err := start(p, "tail", exec.Command("tail", "-f", "/dev/null"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Stop()
		for pid, want := range map[int]uint32{c.Cmd.Process.Pid: want, 0: unix.SCHED_NORMAL} {
			attr, err := unix.SchedGetAttr(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			if attr.Policy != want {
				t.Errorf("process %d beside a child of %s priority: policy %d want %d", pid, p, attr.Policy, want)
			}
		}
	}
	f(PriorityIdle, unix.SCHED_IDLE)
	f(PriorityNormal, unix.SCHED_NORMAL)
}
