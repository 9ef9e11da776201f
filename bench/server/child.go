package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/watchfan/watchfan/bench/measure"
)

// A Child is a process that this program has started. It ends with this program in every case: the
// kernel sends it SIGTERM when its parent thread ends. It has its own process group, and Ctrl-C
// does not reach it directly.
type Child struct {
	name string
	Cmd  *exec.Cmd
	log  *os.File      // its output; the file has no name any more
	exit chan struct{} // closed at its end, after err is set
	err  error
}

// startChild runs a command with the priority of this program, and without input.
func startChild(name, path string, args ...string) (*Child, error) {
	return start(PriorityNormal, name, exec.Command(path, args...))
}

// start runs a command. Its output goes to a log, unless it goes elsewhere.
func start(p Priority, name string, cmd *exec.Cmd) (*Child, error) {
	log, err := os.CreateTemp("", "watchfan-bench-")
	if err != nil {
		return nil, err
	}
	os.Remove(log.Name())
	c := &Child{name: name, Cmd: cmd, log: log, exit: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		// Pdeathsig and the priority belong to this thread. It lives as long as this goroutine.
		runtime.LockOSThread()
		err := p.set()
		if err == nil {
			err = c.Cmd.Start()
		}
		started <- err
		if err == nil {
			c.err = c.Cmd.Wait()
			close(c.exit)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

func (c *Child) Process() measure.Process {
	return measure.Process{Name: c.name, PID: c.Cmd.Process.Pid}
}

// Stop sends SIGTERM, and SIGKILL after 15 s, and returns when the child has ended.
func (c *Child) Stop() {
	c.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exit:
	case <-time.After(15 * time.Second):
		c.Kill()
	}
}

// Kill ends the child with SIGKILL, and returns when it has ended.
func (c *Child) Kill() {
	c.Cmd.Process.Kill()
	<-c.exit
}

// Await waits until the child has written a JSON file, and decodes the file into v.
func (c *Child) Await(ctx context.Context, path string, v any) error {
	const patience = 2 * time.Minute
	for deadline := time.Now().Add(patience); ; {
		data, err := os.ReadFile(path)
		if err == nil && json.Valid(data) {
			return json.Unmarshal(data, v)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s was not ready after %v: %s", c.name, patience, c.tail())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.exit:
			return fmt.Errorf("%s ended before it was ready: %v: %s", c.name, c.err, c.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Alive reports an error if the child has ended.
func (c *Child) Alive() error {
	select {
	case <-c.exit:
		return fmt.Errorf("%s ended: %v: %s", c.name, c.err, c.tail())
	default:
		return nil
	}
}

func (c *Child) tail() []byte {
	data, _ := io.ReadAll(io.NewSectionReader(c.log, 0, 1<<30))
	return bytes.TrimSpace(data[max(len(data)-600, 0):])
}

// A Helper is a command of this program in a process of its own. Its input is its job, a line of JSON, and
// then orders. Its output is its states, in JSON. It ends with its input.
type Helper struct {
	*Child
	Orders io.WriteCloser
	states *json.Decoder
}

// StartHelper runs a command and waits for its first state.
func StartHelper(p Priority, command string, job, state any) (*Helper, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, command)
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	states, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c, err := start(p, command, cmd)
	if err != nil {
		return nil, err
	}
	h := &Helper{Child: c, Orders: orders, states: json.NewDecoder(states)}
	if err := json.NewEncoder(orders).Encode(job); err != nil {
		h.Stop()
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return h, h.State(state)
}

// State waits for the next state. After an error the helper has ended.
func (h *Helper) State(state any) error {
	if err := h.states.Decode(state); err != nil {
		h.Stop()
		return fmt.Errorf("%s has no state: %w: %s", h.name, err, h.tail())
	}
	return nil
}

func (h *Helper) Stop() {
	h.Orders.Close()
	h.Child.Stop()
}

// A Priority is the share of the processors that a process gets.
type Priority string

const (
	PriorityNormal = Priority("normal") // the same as the servers
	PriorityIdle   = Priority("idle")   // SCHED_IDLE, see sched(7): hardly any while another process wants them
)

// set gives the priority to the calling thread and to the processes that it starts. An unprivileged
// thread cannot leave idle: the caller must give the thread up.
func (p Priority) set() error {
	if p == PriorityNormal {
		return nil
	}
	err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
	if err != nil {
		return fmt.Errorf("lowest priority: %w", err)
	}
	return nil
}
