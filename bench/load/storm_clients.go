package load

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"
)

// A StormJob is the task of each client.
type StormJob struct {
	Addr    netip.AddrPort
	TLS     bool
	Request string // its head
	Clients int
	Objects int // initial events, at whose end a client is live; 0: it is live at the begin of its watch
}

// A StormState is the state of the clients so far.
type StormState struct {
	Opened     int64 // times that a client became live
	LastLive   int64 // the last such time, in nanoseconds since the Unix epoch
	Refused    int64 // 429s
	Failed     int64 // attempts that failed otherwise
	FirstError string
}

// RunStormClients is `bench storm-front`. It runs the clients of the job in its input, which begin when there is
// one more byte, writes their states to a file, and ends with its input.
func RunStormClients(ctx context.Context, states string, input io.Reader) error {
	s, in := new(stormClients), bufio.NewReader(input)
	err := ReadJob(in, &s.job)
	if err == nil {
		err = RaiseFileLimit(s.job.Clients)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := make(chan struct{})
	go func() {
		if _, err := in.ReadByte(); err == nil {
			close(begin)
			_, _ = in.ReadByte()
		}
		cancel()
	}()
	var wg sync.WaitGroup
	for range s.job.Clients {
		wg.Go(func() {
			select {
			case <-begin:
				s.client(ctx)
			case <-ctx.Done():
			}
		})
	}
	for err == nil && ctx.Err() == nil {
		err = s.write(states)
		_ = Sleep(ctx, 20*time.Millisecond)
	}
	cancel()
	wg.Wait()
	return err
}

// stormLife bounds each watch.
const stormLife = 3 * time.Minute

// stormClients are the clients of a storm.
type stormClients struct {
	job StormJob

	mu    sync.Mutex
	state StormState // guarded by mu
}

// note changes the state.
func (s *stormClients) note(change func(*StormState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

func (s *stormClients) write(name string) error {
	var st StormState
	s.note(func(now *StormState) { st = *now })
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
func (s *stormClients) client(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := s.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.note(func(st *StormState) {
				st.Failed++
				st.FirstError = cmp.Or(st.FirstError, err.Error())
			})
		}
		_ = Sleep(ctx, wait)
	}
}

// watch opens a watch and reads it to its end. It returns the time to wait before the next attempt.
// It returns an error if the watch never became live, unless the answer was 429.
func (s *stormClients) watch(ctx context.Context) (time.Duration, error) {
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
	_ = c.SetDeadline(time.Now().Add(stormLife))
	if _, err := io.WriteString(c, s.job.Request); err != nil {
		return again, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 4<<10), nil)
	if err != nil {
		return again, err
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		s.note(func(st *StormState) { st.Refused++ })
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
	s.note(func(st *StormState) {
		st.Opened++
		st.LastLive = time.Now().UnixNano()
	})
	_, _ = io.Copy(io.Discard, resp.Body)
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
