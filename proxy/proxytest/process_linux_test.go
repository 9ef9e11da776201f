package proxytest_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// TestLaunch: a launched program outlives the thread that launched it, and dies with the process.
// This test runs itself as that process.
func TestLaunch(t *testing.T) {
	const inner = "PROXYTEST_LAUNCH"
	if os.Getenv(inner) != "" {
		launchAndStay(t)
	}
	t.Parallel()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLaunch$")
	cmd.Env = append(os.Environ(), inner+"=1")
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Start()
	out.Close()
	if err != nil {
		t.Fatal(err)
	}
	_ = in.SetReadDeadline(time.Now().Add(time.Minute))
	line := make([]byte, len("alive\n"))
	if _, err := io.ReadFull(in, line); err != nil || string(line) != "alive\n" {
		t.Errorf("got %q, %v", line, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	// The pipe ends when no process has it any more.
	if rest, err := io.ReadAll(in); err != nil {
		t.Errorf("what was launched is still there: %v, %q", err, rest)
	}
}

// launchAndStay launches a program from a thread that then ends, and makes the program say that it
// is alive.
func launchAndStay(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read line; echo $line; exec sleep 600")
	cmd.Stdout = os.Stdout
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	thread := make(chan int)
	var launch func()
	launch = func() {
		runtime.LockOSThread() // and so it ends with the goroutine,
		if unix.Gettid() == os.Getpid() {
			go launch() // except the first
			select {}
		}
		if err := proxytest.Launch(cmd); err != nil {
			fmt.Println(err)
		}
		thread <- unix.Gettid()
	}
	go launch()
	task := fmt.Sprintf("/proc/self/task/%d", <-thread)
	for {
		if _, err := os.Stat(task); err != nil {
			break
		}
		time.Sleep(time.Millisecond) //testlint:allow timer the kernel tells nobody of the thread's end
	}
	fmt.Fprintln(stdin, "alive")
	// Without cgo, a program without a timer would end as deadlocked.
	time.Sleep(10 * time.Minute) //testlint:allow timer the program is killed meanwhile
}
