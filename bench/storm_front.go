//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// stormFrontName is the command, and the process in figures.
const stormFrontName = "storm-front"

// A stormFront holds the clients of a storm. It is its own process, `bench storm-front`, because
// the reader of the untouched watchers must not share a process with thousands of goroutines. A
// pipe tells it to begin, and it writes its progress to a file.
type stormFront struct {
	child  *child
	dir    string
	orders *os.File
	states string // file
}

// A stormJob is the task of each client.
type stormJob struct {
	Addr     netip.AddrPort
	TLS      bool
	Requests []string // that the clients take in turn
	Clients  int
	Objects  int // initial events, at whose end a client is live; 0: it is live at the begin of its watch
}

// A stormState is the state of the clients so far.
type stormState struct {
	Live       int64 // now
	Opened     int64 // times that a client became live
	LastLive   int64 // the last such time, in nanoseconds since the Unix epoch
	Refused    int64 // 429s
	Failed     int64 // attempts that failed otherwise
	FirstError string
}

// startStormFront starts n clients, which wait for begin. They take the URIs in turn. With objects,
// a client is live when it has got so many initial events and their end.
func startStormFront(ctx context.Context, p priority, e endpoint, uris []string, n, objects int) (*stormFront, error) {
	f := &stormFront{}
	var err error
	if f.dir, err = os.MkdirTemp("", "watchfan-bench-storm-"); err != nil {
		return nil, err
	}
	job := stormJob{Addr: e.addr, TLS: e.tls != nil, Clients: n, Objects: objects}
	for _, uri := range uris {
		job.Requests = append(job.Requests, requestHead(e, uri, "application/json", false))
	}
	if err := f.start(ctx, p, job); err != nil {
		f.stop()
		return nil, fmt.Errorf("storm: %w", err)
	}
	return f, nil
}

func (f *stormFront) start(ctx context.Context, p priority, job stormJob) error {
	jobFile := filepath.Join(f.dir, "job")
	f.states = filepath.Join(f.dir, "state")
	text, err := json.Marshal(job)
	if err == nil {
		err = os.WriteFile(jobFile, text, 0o600)
	}
	if err != nil {
		return err
	}
	if f.child, f.orders, err = startHelper(p, f.dir, stormFrontName, "--job", jobFile, "--states", f.states); err != nil {
		return err
	}
	var st stormState
	return f.child.await(ctx, f.states, &st)
}

func (f *stormFront) process() measure.Process {
	return measure.Process{Name: stormFrontName, PID: f.child.cmd.Process.Pid}
}

// begin lets all clients connect at once.
func (f *stormFront) begin() { f.orders.Write([]byte("\n")) }

// await waits until clients have become live as many times as opened says, and calls progress
// meanwhile.
func (f *stormFront) await(ctx context.Context, opened int, progress func() error) (st stormState, err error) {
	for {
		text, err := os.ReadFile(f.states)
		if err == nil {
			err = json.Unmarshal(text, &st)
		}
		if err == nil && progress != nil {
			err = progress()
		}
		if err = errors.Join(err, f.child.alive()); err != nil {
			return st, err
		}
		if st.Opened >= int64(opened) {
			return st, nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return st, fmt.Errorf("%d of %d watches live, %d refused, %d failed (%s): %w",
				st.Opened, opened, st.Refused, st.Failed, st.FirstError, context.Cause(ctx))
		}
	}
}

func (f *stormFront) stop() {
	if f.child != nil {
		f.orders.Close()
		f.child.stop()
	}
	os.RemoveAll(f.dir)
}

// runStormFront is `bench storm-front`. It ends with its standard input.
func runStormFront(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) error {
	var jobFile, states string
	if err := parseFlags(stormFrontName, func(fs *flag.FlagSet) {
		fs.StringVar(&jobFile, "job", "", "`file` with the task")
		fs.StringVar(&states, "states", "", "`file` for the progress")
	}, args, stderr); err != nil {
		return err
	}
	s := &stormClients{}
	text, err := os.ReadFile(jobFile)
	if err == nil {
		err = json.Unmarshal(text, &s.job)
	}
	if err == nil {
		err = raiseFileLimit(s.job.Clients)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := make(chan struct{})
	go func() {
		in := bufio.NewReader(stdin)
		if _, err := in.ReadByte(); err == nil {
			close(begin)
			_, _ = in.ReadByte()
		}
		cancel()
	}()
	var wg sync.WaitGroup
	for i := range s.job.Clients {
		wg.Go(func() {
			select {
			case <-begin:
				s.client(ctx, s.job.Requests[i%len(s.job.Requests)])
			case <-ctx.Done():
			}
		})
	}
	for err == nil && ctx.Err() == nil {
		err = s.write(states)
		_ = sleep(ctx, 20*time.Millisecond)
	}
	cancel()
	wg.Wait()
	return err
}

// stormClients are the clients of a storm.
type stormClients struct {
	job stormJob

	live, opened, lastLive, refused, failed atomic.Int64

	mu         sync.Mutex
	firstError error // guarded by mu
}

func (s *stormClients) write(name string) error {
	st := stormState{
		Live: s.live.Load(), Opened: s.opened.Load(), LastLive: s.lastLive.Load(),
		Refused: s.refused.Load(), Failed: s.failed.Load(),
	}
	s.mu.Lock()
	if s.firstError != nil {
		st.FirstError = s.firstError.Error()
	}
	s.mu.Unlock()
	text, err := json.Marshal(st)
	if err == nil {
		err = os.WriteFile(name+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	return err
}

// client keeps one watch open until ctx ends. It opens a watch that ended again, as soon as the
// server can be reached.
func (s *stormClients) client(ctx context.Context, request string) {
	for ctx.Err() == nil {
		wait, err := s.watch(ctx, request)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.failed.Add(1)
			s.mu.Lock()
			if s.firstError == nil {
				s.firstError = err
			}
			s.mu.Unlock()
		}
		_ = sleep(ctx, wait)
	}
}

// watch opens a watch and reads it to its end. It returns the time to wait before the next attempt.
// It returns an error if the watch never became live, unless the answer was 429.
func (s *stormClients) watch(ctx context.Context, request string) (time.Duration, error) {
	again := 200*time.Millisecond + rand.N(200*time.Millisecond)
	c, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", s.job.Addr.String())
	if err != nil {
		return again, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if s.job.TLS {
		// Real clients have their own machines. Here they skip work that is not needed.
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	_ = c.SetDeadline(time.Now().Add(stormTime))
	if _, err := io.WriteString(c, request); err != nil {
		return again, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 4<<10), nil)
	if err != nil {
		return again, err
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		s.refused.Add(1)
		return retryAfter(resp.Header), nil
	}
	if resp.StatusCode != http.StatusOK {
		return again, errors.New("answered " + strconv.Itoa(resp.StatusCode))
	}
	if s.job.Objects > 0 {
		if err := readInitialEvents(resp.Body, s.job.Objects); err != nil {
			return again, err
		}
	}
	s.lastLive.Store(time.Now().UnixNano())
	s.live.Add(1)
	s.opened.Add(1)
	_, _ = io.Copy(io.Discard, resp.Body)
	s.live.Add(-1)
	return rand.N(again), nil
}

// readInitialEvents reads up to the end bookmark, and checks the number of events.
func readInitialEvents(body io.Reader, objects int) error {
	lines := bufio.NewReaderSize(body, 32<<10)
	for added := 0; ; {
		line, err := lines.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case bytes.HasPrefix(line, []byte(`{"type":"ADDED"`)):
			added++
		case bytes.Contains(line, endMark) && added == objects:
			return nil
		default:
			return fmt.Errorf("after %d objects: %.200q", added, line)
		}
	}
}
