package attack_test

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// yielded is the variable that says that the process has the lowest priority.
const yielded = "WATCHFAN_ATTACK_YIELDED"

// yieldProcessor gives this process the lowest priority. Then the server's work for attackers slows
// honest clients, and not the attackers' own work. A priority belongs to a thread, so the program
// starts again in a thread that has it.
func yieldProcessor() error {
	if os.Getenv(yielded) != "" {
		return nil
	}
	runtime.LockOSThread()
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		return fmt.Errorf("lowest priority: %w", err)
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), yielded+"=1"))
}
