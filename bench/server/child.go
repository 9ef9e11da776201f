package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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
	log  string        // path of its output
	exit chan struct{} // closed at its end, after err is set
	err  error
}

// startChild runs a command with its output in dir/<name>.log. A nil stdin is empty.
func startChild(p Priority, dir, name string, stdin *os.File, path string, args ...string) (*Child, error) {
	log := filepath.Join(dir, name+".log")
	c := &Child{name: name, Cmd: exec.Command(path, args...), log: log, exit: make(chan struct{})}
	output, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	c.Cmd.Stdout, c.Cmd.Stderr = output, output
	if stdin != nil {
		c.Cmd.Stdin = stdin
	}
	c.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
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

// Process returns the child by its name.
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
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
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

// tail returns the end of the child's output.
func (c *Child) tail() []byte {
	data, _ := os.ReadFile(c.log)
	return bytes.TrimSpace(data[max(len(data)-600, 0):])
}

// A Helper is a command of this program in a process of its own. Its input is its job, a line of JSON, and
// then orders. It writes its state to the file that is its argument, as JSON, and ends with its input.
type Helper struct {
	*Child
	Orders *os.File
	dir    string
}

// StartHelper runs a command and waits for its first state.
func StartHelper(ctx context.Context, p Priority, command string, job, state any) (*Helper, error) {
	h := new(Helper)
	err := h.start(p, command, job)
	if err == nil {
		err = h.Await(ctx, h.state(), state)
	}
	if err != nil {
		h.Stop()
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return h, nil
}

func (h *Helper) start(p Priority, command string, job any) (err error) {
	if h.dir, err = os.MkdirTemp("", "watchfan-bench-"); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	stdin, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	h.Orders = orders
	h.Child, err = startChild(p, h.dir, command, stdin, program, command, h.state())
	stdin.Close()
	if err != nil {
		return err
	}
	return json.NewEncoder(orders).Encode(job) // the pipe has room for it
}

func (h *Helper) state() string { return filepath.Join(h.dir, "state") }

// State reads the latest state.
func (h *Helper) State(state any) error {
	text, err := os.ReadFile(h.state())
	if err != nil {
		return err
	}
	return json.Unmarshal(text, state)
}

// Stop ends the helper, which may have failed to start, and removes its directory.
func (h *Helper) Stop() {
	if h.Orders != nil {
		h.Orders.Close()
	}
	if h.Child != nil {
		h.Child.Stop()
	}
	os.RemoveAll(h.dir)
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
