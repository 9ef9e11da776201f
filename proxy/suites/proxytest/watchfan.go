package proxytest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Watchfan is a running watchfan.
type Watchfan struct {
	*Process
	Ports WatchfanPorts
}

// WatchfanPorts is the content of --ports-file: addresses, and the process's number.
type WatchfanPorts struct {
	Insecure, Secure, Admin string
	PID                     int
}

// StartWatchfan starts program on free ports of loopback, with its files in dir, and waits until
// its ports are open.
func StartWatchfan(program, dir, kubeconfig string, patience time.Duration, args ...string) (*Watchfan, error) {
	ports := filepath.Join(dir, "ports")
	cmd := exec.Command(program,
		append([]string{"--kubeconfig", kubeconfig, "--insecure-port=-1", "--secure-port=-1",
			"--bind-address=127.0.0.1",
			"--admin-port=-1", "--cert-dir", dir, "--ports-file", ports, "--log-level=debug"}, args...)...)
	// The race detector sleeps for a second at the end, unless it is told not to.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	process, err := StartProcess(cmd, filepath.Join(dir, "watchfan.log"))
	if err != nil {
		return nil, err
	}
	p := &Watchfan{Process: process}
	if err := p.AwaitJSON(ports, &p.Ports, patience); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// Stop ends p as an orchestrator does, and returns what it did wrong in its life.
func (p *Watchfan) Stop() error {
	if err := p.End(syscall.SIGTERM, clusterPatience); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	log, err := os.ReadFile(p.Log)
	if err != nil {
		return err
	}
	for _, bad := range []string{"DATA RACE", "panicked", "panic:", "fatal error:",
		"The cache is not what upstream is"} {
		if i := bytes.Index(log, []byte(bad)); i >= 0 {
			return fmt.Errorf("watchfan's log says %q:\n%s", bad, log[max(0, i-200):min(len(log), i+6000)])
		}
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("watchfan exited with %d:\n%s", code, Tail(p.Log, 40))
	}
	return nil
}
