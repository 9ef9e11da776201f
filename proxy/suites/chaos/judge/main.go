package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	dir := flag.String("reports", filepath.Join(os.TempDir(), "judge"), "`directory` for reports of violations")
	timeout := flag.Duration("timeout", 2*time.Minute, "how long to look for an order of reads and writes")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: judge [flags] RECORD")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	guilty, err := run(flag.Arg(0), judge{filepath.Join(*dir, time.Now().Format("2006-01-02T15.04.05")), *timeout})
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(2)
	case guilty:
		os.Exit(1)
	}
}

// run judges a record, and prints what the validators say.
func run(name string, j judge) (guilty bool, err error) {
	began := time.Now()
	lines, err := readRecord(name)
	if err != nil {
		return false, err
	}
	t, err := newTrial(lines)
	if err != nil {
		return false, err
	}
	findings, err := j.try(t)
	if err != nil {
		return false, err
	}
	violations := 0
	for _, f := range findings {
		if f.ghost {
			fmt.Println("not guaranteed:", f)
			continue
		}
		violations++
		fmt.Println("VIOLATION:", f)
	}
	fmt.Printf("%s\n%d violations, after %s\n", t.summary(), violations, time.Since(began).Round(time.Millisecond))
	return violations > 0, nil
}

// summary says how much was judged.
func (t *trial) summary() string {
	var all counts
	n := 0
	for _, clients := range t.clients {
		n += len(clients)
		for _, c := range clients {
			all.add(c.counts)
		}
	}
	return fmt.Sprintf(`seed %d, %d revisions of etcd, %d worlds, %d clients in them
%d streams, %d of them resumed, with %d events and %d bookmarks; %d initial states; %d lists and %d gets
%d relists interrupted streams; %d times what a client held, and %d times behind a relist that broke off
not judged: %d gets at 0 that found nothing`, t.seed, t.history.last(), len(t.worlds), n,
		all.streams, all.resumed, all.events, all.bookmarks, all.initial, all.lists, all.gets,
		all.relists, all.views, all.torn, all.skipped)
}

func (c *counts) add(o counts) {
	c.streams += o.streams
	c.resumed += o.resumed
	c.events += o.events
	c.bookmarks += o.bookmarks
	c.lists += o.lists
	c.gets += o.gets
	c.initial += o.initial
	c.views += o.views
	c.relists += o.relists
	c.torn += o.torn
	c.skipped += o.skipped
}
