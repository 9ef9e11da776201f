//go:build !linux

package proxytest

import "os/exec"

// dieWithParent can't be had on systems other than Linux.
func dieWithParent(*exec.Cmd) {}
