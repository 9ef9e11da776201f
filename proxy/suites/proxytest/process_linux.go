package proxytest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill cmd when the thread ends that starts it.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
