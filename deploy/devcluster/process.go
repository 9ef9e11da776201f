package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Process is one child: this executable, started again with the child's name
// as its command. It can be started any number of times, one after the other.
// Its methods are called by one goroutine at a time.
type Process struct {
	// Immutable.
	name string
	args []string
	dir  Dir
	lock *os.File // inherited, see lockDir

	// Of the last start; nil and zero before the first.
	cmd       *exec.Cmd
	exited    chan struct{} // closed once cmd.Wait has returned
	logOffset int64         // where its log begins, in bytes
}

// Start starts the child, which writes to name.log, and writes name.pid.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.dir.file(p.name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil {
		p.logOffset = info.Size()
	}
	cmd := &exec.Cmd{
		// Not the path: it may be another build by now.
		Path:       "/proc/self/exe",
		Args:       append([]string{"devcluster", p.name}, p.args...),
		Stdout:     log,
		Stderr:     log,
		ExtraFiles: []*os.File{p.lock},
		SysProcAttr: &syscall.SysProcAttr{
			Pdeathsig: syscall.SIGKILL,
			Setpgid:   true, // Ctrl-C is for the parent, which stops the children in order
		},
	}
	if err := spawn(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited
	return p.dir.writePid(p.name, cmd.Process.Pid)
}

// Started reports whether the child was ever started.
func (p *Process) Started() bool { return p.cmd != nil }

// Exited returns a channel that is closed when the started child is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running reports whether the child is there, be it stopped by SIGSTOP.
func (p *Process) Running() bool {
	if !p.Started() {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Pid returns the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// ExitState says how the child ended, such as "signal: killed".
// It is called once Exited is closed.
func (p *Process) ExitState() string { return p.cmd.ProcessState.String() }

// Stop asks the child to end, kills it if it takes longer than grace, and
// returns when it is gone. A child that does not run is fine.
func (p *Process) Stop(grace time.Duration) {
	if p.Running() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		p.Continue()
		select {
		case <-p.exited:
		case <-time.After(grace):
		}
	}
	p.Kill()
}

// Kill kills the child and returns when it is gone.
func (p *Process) Kill() {
	if p.Running() {
		p.cmd.Process.Kill()
		<-p.exited
	}
	p.dir.remove(p.name + ".pid")
}

// Continue undoes a SIGSTOP, which would keep the child from stopping cleanly.
func (p *Process) Continue() {
	if p.Running() {
		p.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// LogTail returns the last n lines the child wrote since it was started.
func (p *Process) LogTail(n int) []byte {
	data, err := os.ReadFile(p.dir.file(p.name + ".log"))
	if err != nil || int64(len(data)) < p.logOffset {
		return nil
	}
	lines := bytes.SplitAfter(data[p.logOffset:], []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n-1):], nil)
}

// spawnc hands commands to the goroutine that starts all of them.
// It is never closed.
var spawnc = make(chan spawnRequest)

type spawnRequest struct {
	cmd  *exec.Cmd
	errc chan<- error
}

var startSpawnLoop = sync.OnceFunc(func() { go spawnLoop() })

// spawnLoop starts children, always on the same OS thread and until this
// process ends. Pdeathsig kills a child when the *thread* that started it
// ends, and Go ends threads as it likes, except those locked to a goroutine.
func spawnLoop() {
	runtime.LockOSThread()
	for request := range spawnc {
		request.errc <- request.cmd.Start()
	}
}

// spawn starts cmd so that its Pdeathsig means the death of this process.
func spawn(cmd *exec.Cmd) error {
	startSpawnLoop()
	errc := make(chan error)
	spawnc <- spawnRequest{cmd, errc}
	return <-errc
}

// setProcessName makes ps and top show the process as name, and not as "exe".
// It is for show: an error is of no consequence.
func setProcessName(name string) { os.WriteFile("/proc/self/comm", []byte(name), 0) }
