//go:build linux

package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A priority is what share of the processors a process gets.
type priority string

const (
	priorityNormal = priority("normal") // the same as the servers
	priorityIdle   = priority("idle")   // SCHED_IDLE, see sched(7): hardly any while somebody else wants them
)

// set gives the priority to the calling thread and to what it will start. From idle there is no way
// back without privileges, so the thread is to be given up.
func (p priority) set() error {
	if p == priorityNormal {
		return nil
	}
	err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
	if err != nil {
		return fmt.Errorf("lowest priority: %w", err)
	}
	return nil
}
