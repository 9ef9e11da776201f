// Stress runs a test binary again and again, and prints how often each test fails. A third of the runs
// has the machine to itself, a third runs beside twice as many busy loops as there are processors, and
// a third has one processor. The order of the tests is drawn anew in each run.
//
//	go test -c -race -o bin/stress.test ./fanout
//	go run ./proxy/proxytest/stress -n 15 -dir fanout bin/stress.test -test.run=^TestParked
//
// It exits with 1 if anything failed. What a run that failed has printed is kept in bin/stress.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// mode is how a run is disturbed.
type mode string

const (
	quiet mode = "quiet"
	busy  mode = "busy"
	one   mode = "one processor"
)

var modes = []mode{quiet, busy, one}

func main() {
	n := flag.Int("n", 10, "runs in each mode")
	dir := flag.String("dir", ".", "the directory of the package, in which its tests run")
	keep := flag.String("keep", "bin/stress", "directory for what failed runs print")
	flag.Parse()
	if flag.NArg() == 0 || *n < 1 {
		fmt.Fprintln(os.Stderr, "usage: stress [-n RUNS] [-dir DIRECTORY] TEST-BINARY [FLAG…]")
		os.Exit(2)
	}
	failed, err := stress(os.Stdout, *n, *dir, *keep, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// stress makes n runs in each mode, and reports whether any failed.
func stress(out io.Writer, n int, dir, keep string, command []string) (failed bool, err error) {
	program, err := filepath.Abs(command[0])
	if err != nil {
		return false, err
	}
	t := newTally()
	for _, m := range modes {
		end := disturb(m)
		for i := range n {
			cmd := exec.Command(program, append(slices.Clone(command[1:]), "-test.v", "-test.shuffle=on")...)
			cmd.Dir, cmd.Env = dir, os.Environ()
			if m == one {
				cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
			}
			began := time.Now()
			printed, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				end()
				return false, err
			}
			verdict := "ok"
			if !t.add(m, string(printed), err == nil) {
				failed, verdict = true, "FAIL"
				if err := save(keep, fmt.Sprintf("%s-%d.log", m, i), printed); err != nil {
					end()
					return true, err
				}
			}
			fmt.Fprintf(out, "%s run %d of %d: %s after %s\n", m, i+1, n, verdict, time.Since(began).Round(time.Second))
		}
		end()
	}
	_, err = io.WriteString(out, t.table())
	return failed, err
}

func save(dir, name string, content []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), content, 0o644)
}

// disturb keeps the processors busy in mode busy, until end is called.
func disturb(m mode) (end func()) {
	if m != busy {
		return func() {}
	}
	loops := 2 * runtime.NumCPU()
	before := runtime.GOMAXPROCS(loops + 1)
	var over atomic.Bool
	for range loops {
		go func() {
			for !over.Load() { // the check is the work
			}
		}()
	}
	return func() {
		over.Store(true)
		runtime.GOMAXPROCS(before)
	}
}

// rate is a share in percent.
func rate(failed, runs int) string {
	return strconv.FormatFloat(100*float64(failed)/float64(max(runs, 1)), 'f', 1, 64) + " %"
}
