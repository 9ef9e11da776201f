package proxytest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaries is where make builds programs: bin beside the Makefile, which is in a folder above the
// package's.
var binaries = func() string {
	for dir := ".."; ; dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "Makefile")); err == nil || len(dir) > 100 {
			return filepath.Join(dir, "bin")
		}
	}
}()

// Binary returns the absolute path of a program that make builds: the value of the environment
// variable env, or name in binaries. Without the program the test is skipped, or fails where CI=true.
// target is the target of make.
func Binary(t testing.TB, env, name, target string) string {
	t.Helper()
	return built(t, cmp.Or(os.Getenv(env), filepath.Join(binaries, name)), name, target, env)
}

// built is Binary for a program at path.
func built(t testing.TB, path, name, target, env string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not built (%v), and in CI this test must run: make %s builds it", name, err, target)
		}
		t.Skipf("%s is not built (%v): run make %s, which builds it, or set %s", name, err, target, env)
	}
	return path
}

// Launch starts cmd. On Linux cmd dies with this process, however that ends. The kernel ties it to
// the thread that forked, so one thread starts all programs and never ends.
func Launch(cmd *exec.Cmd) error {
	launcher.once.Do(func() {
		launcher.c = make(chan func())
		go func() {
			runtime.LockOSThread()
			for f := range launcher.c {
				f()
			}
		}()
	})
	dieWithParent(cmd)
	errc := make(chan error)
	launcher.c <- func() { errc <- cmd.Start() }
	return <-errc
}

var launcher struct {
	once sync.Once
	c    chan func() // never closed
}

// Process is a program that a test has started. Its methods may be called from any goroutine.
type Process struct {
	Cmd    *exec.Cmd
	Log    string          // file of what it prints
	Exited <-chan struct{} // closed when it has ended, and Cmd.ProcessState is set
}

// StartProcess launches cmd and appends what it prints to the file log.
func StartProcess(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := Launch(cmd); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ProcessState says how
		close(exited)
	}()
	return &Process{Cmd: cmd, Log: log, Exited: exited}, nil
}

func (p *Process) name() string { return filepath.Base(p.Cmd.Path) }

// AwaitJSON waits until p has written a file of JSON, and reads it into v. It is an error if p ends
// before that, or if it takes longer than patience.
func (p *Process) AwaitJSON(file string, v any, patience time.Duration) error {
	return p.Await(patience, func() error {
		content, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(content, v)
		}
		return err
	})
}

// Await waits until ready returns nil. It is an error if p ends before that, or if it takes longer
// than patience.
func (p *Process) Await(patience time.Duration, ready func() error) error {
	//testlint:allow timer the condition is looked at again
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.Exited:
			return fmt.Errorf("%s has ended, %s:\n%s", p.name(), p.Cmd.ProcessState, Tail(p.Log, 60))
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready after %s: %w\n%s", p.name(), patience, err, Tail(p.Log, 60))
		}
	}
}

// End sends p a signal and waits for its end. If that takes longer than patience, p prints its
// goroutines, is killed, and End returns an error. The error is os.ErrProcessDone if p had ended
// before.
//
//testlint:allow timer it only ends what hangs
func (p *Process) End(signal os.Signal, patience time.Duration) error {
	err := p.Cmd.Process.Signal(signal)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.Exited:
		return err
	case <-time.After(patience):
	}
	_ = p.Cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.Exited:
	case <-time.After(10 * time.Second):
		_ = p.Cmd.Process.Kill()
		<-p.Exited
	}
	return fmt.Errorf("%s did not end within %s of %s:\n%s", p.name(), patience, signal, Tail(p.Log, 200))
}

// Tail returns the last lines of a file, without kube-apiserver's lines about its feature gates, or
// why the file can't be read.
func Tail(file string, lines int) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(content)), "\n"), func(l string) bool { return strings.Contains(l, "Feature gate") })
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
