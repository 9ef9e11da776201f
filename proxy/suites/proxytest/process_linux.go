package proxytest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill cmd when the thread ends that starts it.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
