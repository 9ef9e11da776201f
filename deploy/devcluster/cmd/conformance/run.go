package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runSpecs deals the specs out to workers and prints each result as it comes. It
// returns an error unless every spec has passed: one that was skipped, or is not
// in this version of Kubernetes, has not.
func runSpecs(ctx context.Context, opts Options, specs []string) error {
	began := time.Now()
	results := make(chan Result)
	var workers sync.WaitGroup
	for _, hand := range deal(specs, opts.Parallel) {
		workers.Go(func() {
			if err := startWorker(ctx, Job{opts, hand}, results); err != nil {
				fmt.Fprintf(os.Stderr, "conformance: worker: %v\n", err)
			}
		})
	}
	go func() {
		workers.Wait()
		close(results)
	}()

	passed := make(map[string]bool)
	for r := range results {
		printResult(r)
		passed[r.Spec] = r.passed()
	}
	var lost []string
	for _, s := range specs {
		if !passed[s] {
			lost = append(lost, s)
		}
	}
	fmt.Printf("%d of %d specs passed in %v\n", len(specs)-len(lost), len(specs), time.Since(began).Round(time.Second))
	if len(lost) > 0 {
		return fmt.Errorf("%d of %d specs did not pass:\n  %s", len(lost), len(specs), strings.Join(lost, "\n  "))
	}
	return nil
}

// deal splits the specs into at most n parts. Neighbours, which often take
// equally long, come into different ones.
func deal(specs []string, n int) [][]string {
	hands := make([][]string, min(n, len(specs)))
	for i, s := range specs {
		hands[i%len(hands)] = append(hands[i%len(hands)], s)
	}
	return hands
}

// startWorker runs a job in a process of its own and passes on its results.
func startWorker(ctx context.Context, job Job, results chan<- Result) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	input, err := json.Marshal(job)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, workerCommand)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = decodeResults(output, results)
	return errors.Join(err, cmd.Wait())
}

func decodeResults(r io.Reader, results chan<- Result) error {
	decoder := json.NewDecoder(r)
	for {
		var result Result
		switch err := decoder.Decode(&result); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("read a result: %w", err)
		}
		results <- result
	}
}

// loggedLines is how much is shown of a failed spec's log: its end.
const loggedLines = 60

func printResult(r Result) {
	fmt.Printf("%-7s %6.1fs  %s\n", r.State, r.Elapsed.Seconds(), r.Spec)
	if r.passed() {
		return
	}
	lines := strings.Split(strings.TrimSpace(r.Log), "\n")
	lines = lines[max(0, len(lines)-loggedLines):]
	text := fmt.Sprintf("%s\nat %s\n%s", r.Message, r.Location, strings.Join(lines, "\n"))
	fmt.Println("    " + strings.ReplaceAll(text, "\n", "\n    "))
}
