//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// runBench is `bench run`: every peer in turn, as often as there are rounds, and a report of whatever was measured
// even if something failed.
func runBench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := defaults()
	fs := flag.NewFlagSet("bench run", flag.ContinueOnError)
	fs.SetOutput(stderr)
	o.AddFlags(fs)
	if err := parse(fs, args); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	// The goroutine that takes acknowledgements must not wait for one that reads watches: leave it to the kernel, which
	// is fair, to share the cores between them.
	runtime.GOMAXPROCS(max(runtime.NumCPU(), o.Readers+2))

	results, err := measureAll(ctx, o, stderr)
	if len(results) == 0 {
		return err
	}
	subtractWrites(results)
	failed := 0
	for _, r := range results {
		if r.err != nil {
			failed++
		}
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d cases failed", failed, len(results)))
	}
	var report bytes.Buffer
	newConditions(o).write(&report)
	if err != nil {
		fmt.Fprintf(&report, "\nINCOMPLETE: %v\n", err)
	}
	fmt.Fprintln(&report)
	writeTables(&report, results)
	fmt.Fprintln(&report)
	writeBenchmarks(&report, results)
	stdout.Write(report.Bytes())
	return errors.Join(err, publish(o.Out, report.Bytes()))
}

// publish keeps a report under bench/results.
func publish(name string, report []byte) error {
	if name == "" {
		return nil
	}
	dir := filepath.Join("bench", "results")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, time.Now().Format(time.DateOnly)+"-"+name+".txt"), report, 0o644)
}

// measureAll runs the sessions: A B C, A B C, … so that a machine that changes its mind does so for everyone.
func measureAll(ctx context.Context, o *Options, stderr io.Writer) (results []result, err error) {
	start := time.Now()
	guess := make([]time.Duration, len(o.Peers)) // how long a peer's session takes
	for i, p := range o.Peers {
		guess[i] = o.estimate(p)
	}
	for i := range o.Rounds * len(o.Peers) {
		round, turn := 1+i/len(o.Peers), i%len(o.Peers)
		var later time.Duration
		for j := i + 1; j < o.Rounds*len(o.Peers); j++ {
			later += guess[j%len(o.Peers)]
		}
		begun := time.Now()
		say := func(format string, args ...any) {
			left := max(guess[turn]-time.Since(begun), 0) + later
			fmt.Fprintf(stderr, "%s elapsed, about %s left  round %d/%d  %v: %s\n",
				clock(time.Since(start)), clock(left), round, o.Rounds, o.Peers[turn], fmt.Sprintf(format, args...))
		}
		some, err := runSession(ctx, o, o.Peers[turn], round, say)
		results = append(results, some...)
		if err != nil {
			return results, err
		}
		guess[turn] = time.Since(begun)
	}
	return results, nil
}

// estimate guesses how long one session takes, until one has shown it.
func (o *Options) estimate(p peer) time.Duration {
	const start, perWatcher = 8 * time.Second, 2 * time.Millisecond
	cases := 0
	for _, n := range o.Clients {
		if n > 0 || p == direct {
			cases += len(o.Rates)
		}
	}
	return start + time.Duration(o.Clients[0])*perWatcher + time.Duration(cases)*(o.Warmup+o.Window)
}

// clock writes a duration as minutes and seconds.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
