// Stress runs the tests of packages again and again, and prints how often each test fails: with the
// machine to themselves, beside twice as many busy loops as there are processors, and with one
// processor. The order of the tests is drawn anew in each run.
//
//	go run ./proxy/suites/proxytest/stress -n 15,15,5 -run ^TestParked ./fanout ./proxy/store/lane
//
// It exits with 1 if anything failed. What a package has printed in a run that failed is kept in
// bin/stress.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
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

var modes = [...]mode{quiet, busy, one}

// binary is the built tests of a package.
type binary struct {
	pkg, dir, path string
	run            string // expression for the tests that are run
}

// stress is what is run, and what came of it.
type stress struct {
	binaries []binary
	flags    []string // for the binaries
	keep     string   // directory for what failed runs print
	tally
}

func main() {
	n := flag.String("n", "10", "runs, or runs in each mode: `QUIET,BUSY,ONE`")
	run := flag.String("run", "", "run only tests that match the `expression`")
	e2e := flag.String("e2e", "", "without -run, run only tests of package e2e that match the `expression`")
	short := flag.Bool("short", false, "run the tests with -short")
	build := flag.String("build", "", "`flags` for go test -c, as -race")
	flag.Parse()
	failed, err := runAll(*n, *run, *e2e, *short, strings.Fields(*build), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

func runAll(n, run, e2e string, short bool, build, packages []string) (failed bool, err error) {
	runs, err := parseRuns(n)
	if err != nil {
		return false, err
	}
	s := &stress{keep: "bin/stress", tally: make(tally), flags: []string{"-test.v=test2json", "-test.shuffle=on",
		"-test.timeout=1h", "-test.short=" + strconv.FormatBool(short)}}
	if err := os.MkdirAll(s.keep, 0o755); err != nil {
		return false, err
	}
	if s.binaries, err = buildAll(s.keep, build, packages); err != nil {
		return false, err
	}
	for i := range s.binaries {
		s.binaries[i].run = run
		if run == "" && path.Base(s.binaries[i].pkg) == "e2e" {
			s.binaries[i].run = e2e
		}
	}
	err = s.run(runs)
	fmt.Print(s.table())
	return s.failures() > 0, err
}

func parseRuns(n string) (runs [len(modes)]int, err error) {
	parts := strings.Split(n, ",")
	for i := range runs {
		part := parts[min(i, len(parts)-1)]
		if runs[i], err = strconv.Atoi(part); err != nil || runs[i] < 0 || len(parts) != 1 && len(parts) != len(runs) {
			return runs, fmt.Errorf("%q is not a number of runs, nor three: quiet, busy, one processor", n)
		}
	}
	return runs, nil
}

// buildAll builds the tests of packages, each once.
func buildAll(dir string, flags, packages []string) ([]binary, error) {
	list := exec.Command("go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}, packages...)...)
	list.Stderr = os.Stderr
	listed, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []binary
	for line := range strings.Lines(string(listed)) {
		pkg, packageDir, _ := strings.Cut(strings.TrimSpace(line), " ")
		file, err := filepath.Abs(filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-")+".test"))
		if err != nil {
			return nil, err
		}
		build := exec.Command("go", append(append([]string{"test", "-c", "-o", file}, flags...), pkg)...)
		if said, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, said)
		}
		all = append(all, binary{pkg: pkg, dir: packageDir, path: file})
	}
	return all, nil
}

// run makes the runs of each mode.
func (s *stress) run(runs [len(modes)]int) error {
	for i, m := range modes {
		end := disturb(m)
		for n := range runs[i] {
			began := time.Now()
			for _, b := range s.binaries {
				if err := s.runOne(b, m); err != nil {
					end()
					return err
				}
			}
			fmt.Printf("%s run %d of %d ended after %s, %d tests have failed until now\n", m, n+1, runs[i], time.Since(began).Round(time.Second), s.failures())
		}
		end()
	}
	return nil
}

// runOne runs the tests of a package once.
func (s *stress) runOne(b binary, m mode) error {
	cmd := exec.Command("go", append([]string{"tool", "test2json", "-t", "-p", b.pkg, b.path, "-test.run=" + b.run}, s.flags...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = b.dir, os.Environ(), os.Stderr
	if m == one {
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	}
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	outcomes, printed, readErr := read(events, m)
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) || readErr != nil {
		return errors.Join(readErr, err)
	}
	for _, o := range outcomes {
		s.note(o)
		if o.Action == "fail" {
			file := fmt.Sprintf("%s-%s-%s.log", filepath.Base(b.path), strings.Fields(string(m))[0], o.Shuffle)
			fmt.Printf("%s failed: see %s\n", o.name(), filepath.Join(s.keep, file))
			if err := os.WriteFile(filepath.Join(s.keep, file), []byte(printed), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
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
