//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
	"github.com/watchfan/watchfan/bench/server"
)

// stormFrontName is the command, and the process in figures.
const stormFrontName = "storm-front"

// A stormFront holds the clients of a storm. It is its own process, `bench storm-front`, because
// the reader of the untouched watchers must not share a process with thousands of goroutines. A
// pipe tells it to begin, and it writes its progress to a file.
type stormFront struct {
	child  *server.Child
	dir    string
	orders *os.File
	states string // file
}

// startStormFront starts n clients, which wait for begin and then ask for a URI. With objects, a
// client is live when it has got so many initial events and their end.
func startStormFront(ctx context.Context, p server.Priority, e load.Endpoint, uri string, n, objects int) (*stormFront, error) {
	dir, err := os.MkdirTemp("", "watchfan-bench-storm-")
	if err != nil {
		return nil, err
	}
	f := &stormFront{dir: dir, states: filepath.Join(dir, "state")}
	job := load.StormJob{Addr: e.Addr, TLS: e.TLS != nil, Clients: n, Objects: objects,
		Request: load.RequestHead(e, uri, "application/json", false)}
	if err := f.start(ctx, p, job); err != nil {
		f.stop()
		return nil, fmt.Errorf("storm: %w", err)
	}
	return f, nil
}

func (f *stormFront) start(ctx context.Context, p server.Priority, job load.StormJob) error {
	jobFile := filepath.Join(f.dir, "job")
	text, err := json.Marshal(job)
	if err == nil {
		err = os.WriteFile(jobFile, text, 0o600)
	}
	if err != nil {
		return err
	}
	if f.child, f.orders, err = server.StartHelper(p, f.dir, stormFrontName, "--job", jobFile, "--states", f.states); err != nil {
		return err
	}
	var st load.StormState
	return f.child.Await(ctx, f.states, &st)
}

func (f *stormFront) process() measure.Process {
	return measure.Process{Name: stormFrontName, PID: f.child.Cmd.Process.Pid}
}

// begin lets all clients connect at once.
func (f *stormFront) begin() { f.orders.Write([]byte("\n")) }

// await waits until clients have become live as many times as opened says, and calls progress
// meanwhile.
func (f *stormFront) await(ctx context.Context, opened int, progress func() error) (st load.StormState, err error) {
	for {
		text, err := os.ReadFile(f.states)
		if err == nil {
			err = json.Unmarshal(text, &st)
		}
		if err == nil {
			err = progress()
		}
		if err = errors.Join(err, f.child.Alive()); err != nil {
			return st, err
		}
		if st.Opened >= int64(opened) {
			return st, nil
		}
		if err := load.Sleep(ctx, 20*time.Millisecond); err != nil {
			return st, fmt.Errorf("%d of %d watches live, %d refused, %d failed (%s): %w",
				st.Opened, opened, st.Refused, st.Failed, st.FirstError, context.Cause(ctx))
		}
	}
}

func (f *stormFront) stop() {
	if f.child != nil {
		f.orders.Close()
		f.child.Stop()
	}
	os.RemoveAll(f.dir)
}

// runStormFront is `bench storm-front`. It ends with its standard input.
func runStormFront(ctx context.Context, args []string, _, stderr io.Writer) error {
	var job, states string
	if err := parseFlags(stormFrontName, func(fs *flag.FlagSet) {
		fs.StringVar(&job, "job", "", "`file` with the task")
		fs.StringVar(&states, "states", "", "`file` for the progress")
	}, args, stderr); err != nil {
		return err
	}
	return load.RunStormClients(ctx, job, states, os.Stdin)
}
