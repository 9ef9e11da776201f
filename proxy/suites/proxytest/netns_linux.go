package proxytest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// IP runs the program ip, which needs root for most of what it does. An error has what it printed.
func IP(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// InNamespace calls f in a network namespace that ip has named, and returns its error. A socket belongs to
// the namespace of the thread that makes it. The thread ends with the goroutine.
func InNamespace(name string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		ns, err := os.Open("/run/netns/" + name)
		if err == nil {
			defer ns.Close()
			err = os.NewSyscallError("setns", unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET))
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
