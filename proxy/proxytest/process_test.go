package proxytest_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// shell starts a script in the folder of the file ready.
func shell(t *testing.T, script string) (p *proxytest.Process, ready string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	p, err := proxytest.StartProcess(cmd, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		<-p.Exited
	})
	return p, filepath.Join(dir, "ready")
}

// A program that ends instead of getting ready is noticed at once. One that ignores the signal to end is killed.
// Both are errors that show what it printed.
func TestProcess(t *testing.T) {
	t.Parallel()
	p, ready := shell(t, "echo no port; exit 3")
	if err := p.AwaitJSON(ready, new(any), time.Minute); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no port") {
		t.Errorf("got %v", err)
	}
	if err := p.End(syscall.SIGTERM, time.Minute); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the end of what has ended: got %v", err)
	}
	p, ready = shell(t, `trap "" TERM; echo stubborn; echo {} >ready; while :; do sleep 1; done`)
	if err := p.AwaitJSON(ready, new(any), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := p.End(syscall.SIGTERM, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not end") || !strings.Contains(err.Error(), "stubborn") {
		t.Errorf("got %v", err)
	}
}
